// cp.async: a copy takes effect at the wait for its group, so that a missing wait shows.
#include <cstring>

#include "runtime.h"

using emulator::AsyncCopy;
using emulator::Fiber;
using emulator::worker;

void emulator_copy_async(int line, void* to, const void* from, unsigned bytes,
                         unsigned from_bytes) {
  Fiber* fiber = worker->current();
  fiber->copies.push_back({to, from, bytes, from_bytes, fiber->copy_group, line});
}

void emulator_copy_commit() { ++worker->current()->copy_group; }

void emulator_copy_wait(int groups_left) {
  Fiber* fiber = worker->current();
  std::vector<AsyncCopy> pending;
  for (const AsyncCopy& copy : fiber->copies) {
    if (copy.group >= fiber->copy_group - groups_left) {
      pending.push_back(copy);
      continue;
    }
    if (copy.from_bytes) emulator_access(copy.line, copy.from, copy.from_bytes, emulator::kRead);
    emulator_access(copy.line, copy.to, copy.bytes, emulator::kWrite);
    memset(copy.to, 0, copy.bytes);
    memcpy(copy.to, copy.from, copy.from_bytes);
  }
  fiber->copies.swap(pending);
}

void* emulator_shared_pointer(int line, unsigned address) {
  for (auto* shared : {&worker->static_shared, &worker->dynamic_shared}) {
    const auto begin = static_cast<unsigned>(reinterpret_cast<uintptr_t>(shared->begin));
    if (address - begin < shared->size) return shared->begin + (address - begin);
  }
  emulator_fail(line, "the address is outside of shared memory");
}
