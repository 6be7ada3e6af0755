// What kernels call: barriers, shuffles, votes. Each gives control to the scheduler and waits.
#include "runtime.h"

using emulator::State;
using emulator::worker;

void emulator_barrier(int line) { worker->wait(State::kBarrier, line, "__syncthreads"); }

int emulator_barrier_vote(int line, int predicate, int vote) {
  worker->current()->predicate = predicate != 0;
  emulator_barrier(line);
  int yes = 0, all = 0;
  for (unsigned i = 0; i < worker->threads; ++i) {
    if (worker->fibers[i].state == State::kDone) continue;
    ++all;
    yes += worker->fibers[i].predicate;
  }
  emulator_barrier(line);  // nobody changes its predicate before all have counted
  switch (emulator::Vote(vote)) {
    case emulator::Vote::kAll: return yes == all;
    case emulator::Vote::kAny: return yes > 0;
    default: return yes;
  }
}

void emulator_exchange(int line, const char* name, unsigned mask, const void* mine, void* all,
                       unsigned bytes) {
  emulator::Fiber* fiber = worker->current();
  if (!((mask >> fiber->lane) & 1)) {
    worker->fail(line, nullptr, emulator::text("%s: lane %u calls it, but is not in its mask 0x%08x",
                                               name, fiber->lane, mask));
    worker->stop();
  }
  fiber->mask = mask;
  fiber->mine = mine;
  fiber->all = all;
  fiber->bytes = bytes;
  worker->wait(State::kExchange, line, name);
}

unsigned emulator_active_mask(int line) {
  worker->wait(State::kActiveMask, line, "__activemask");
  return worker->current()->active;
}

void emulator_lock_step(int line) {
  worker->wait(State::kActiveMask, line, "a step in lock step");
  if (worker->current()->active) {
    // The first lane to go on counts for all.
    for (unsigned l = 0; l < 32; ++l) {
      if ((worker->current()->active >> l) & 1) {
        worker->fibers[worker->current()->warp * 32 + l].active = 0;
      }
    }
    ++worker->warp_epochs[worker->current()->warp];
  }
}

void emulator_foreign_lane(int line, const char* name, unsigned mask, int lane) {
  if (!emulator::config.strict_shuffles) return;
  worker->fail(line, nullptr, emulator::text("%s reads lane %d, which is not in its mask 0x%08x",
                                             name, lane, mask));
  worker->stop();
}

void emulator_fail(int line, const char* message) {
  worker->fail(line, nullptr, message);
  worker->stop();
}
