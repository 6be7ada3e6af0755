// What check mode does at each access to device memory: bounds, alignment, initialisation, races.
#include <sys/mman.h>

#include <cstdlib>

#include "runtime.h"

namespace emulator {

static const char* verb(int kind) {
  return kind == kRead ? "read" : kind == kWrite ? "write" : "atomic operation";
}

// The buffer that a kernel's line touched last is most likely the one it touches now.
static Buffer* find_buffer_near(const char* address, const void* place) {
  struct Entry {
    Buffer* buffer;
    const char *begin, *end;
  };
  static Entry recent[64];
  static uint32_t launch_of_entries;
  if (launch_of_entries != worker->launch->first_interval) {
    for (Entry& entry : recent) entry = {};
    launch_of_entries = worker->launch->first_interval;
  }
  Entry& entry = recent[(reinterpret_cast<uintptr_t>(place) >> 2) % 64];
  if (address >= entry.begin && address < entry.end) return entry.buffer;
  Buffer* found = find_buffer(address);
  if (found) entry = {found, found->map, found->map + found->map_size};
  return found;
}

[[noreturn]] static void stop(int line, void* pc, const std::string& message) {
  worker->fail(line, pc, message);
  worker->stop();
}

static Shadow* shadow_of(Buffer* buffer) {
  if (!buffer->shadow) {
    void* map = mmap(nullptr, buffer->size * sizeof(Shadow), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) abort();
    buffer->shadow = static_cast<Shadow*>(map);
  }
  return buffer->shadow;
}

static void check_bounds(const char* address, unsigned bytes, int kind, const char* begin,
                         size_t size, const char* what, int line, void* pc) {
  if (address >= begin && address + bytes <= begin + size) return;
  stop(line, pc, text("out of bounds: %u-byte %s at byte %td of %s of %zu bytes", bytes, verb(kind),
                      address - begin, what, size));
}

static void check_initialised(const Shadow* shadow, unsigned bytes, int line, void* pc) {
  for (unsigned i = 0; i < bytes; ++i) {
    if (shadow[i].written.interval >= worker->first_interval) continue;
    stop(line, pc, "uninitialised: a read of shared memory that no thread of the block has written");
  }
}

void check_access(char* address, unsigned bytes, int kind, int line, void* pc) {
  Worker& block = *worker;
  if (!block.running || block.failed || block.on_stack(address)) return;
  SharedMemory* shared = block.static_shared.holds(address)    ? &block.static_shared
                         : block.dynamic_shared.holds(address) ? &block.dynamic_shared
                                                               : nullptr;
  Buffer* buffer = nullptr;
  Shadow* shadow;
  if (shared) {
    const char* what = shared == &block.static_shared ? "static shared memory"
                                                      : "dynamic shared memory";
    check_bounds(address, bytes, kind, shared->begin, shared->size, what, line, pc);
    shadow = shared->shadow.data() + (address - shared->begin);
  } else {
    buffer = find_buffer_near(address, pc);
    if (!buffer) return;  // a constant or a variable of the compiled kernel
    check_bounds(address, bytes, kind, buffer->begin, buffer->size, "a device buffer", line, pc);
    shadow = config.check ? shadow_of(buffer) + (address - buffer->begin) : nullptr;
  }
  if (bytes & (bytes - 1) ? false : reinterpret_cast<uintptr_t>(address) % bytes != 0) {
    stop(line, pc, text("misaligned: %u-byte %s at an address that is no multiple of %u", bytes,
                        verb(kind), bytes));
  }
  if (block.profiling) {
    profile_access(address, bytes, kind, buffer, line, pc, block.current()->linear);
  }
  if (!config.check) return;
  if (shared && kind != kWrite) check_initialised(shadow, bytes, line, pc);
  const std::string race = find_race(shadow, bytes, kind, buffer != nullptr);
  if (!race.empty()) {
    stop(line, pc, text("data race on %s memory: %s", shared ? "shared" : "global", race.c_str()));
  }
}

}  // namespace emulator

void emulator_access(int line, const void* address, unsigned bytes, int kind) {
  if (!emulator::worker->launch->instrumented) return;
  emulator::check_access(static_cast<char*>(const_cast<void*>(address)), bytes, kind, line,
                         __builtin_return_address(0));
}
