// What compiled kernels and the runtime agree on: one CUDA thread, and the calls a kernel makes.
//
// Kernels see this through device.h, the runtime through runtime.h. Every call takes the line of
// the CUDA source it stands for, so that a report can quote it.
#pragma once
#include <cstddef>
#include <cstdint>

namespace emulator {

// One CUDA thread, as its kernel sees it. The runtime's Fiber extends it.
struct Thread {
  unsigned thread_index[3], block_index[3], block_size[3], grid_size[3];
  char* static_shared;
  char* dynamic_shared;
  unsigned lane, warp, linear;
};

enum class Vote : int { kAll, kAny, kCount };

}  // namespace emulator

extern "C" {
// The running thread. Kernels read it by assembly (device.h): checks must not see that read.
extern __thread emulator::Thread* emulator_thread __attribute__((tls_model("initial-exec")));

void emulator_barrier(int line);
int emulator_barrier_vote(int line, int predicate, int vote);

// Waits until all lanes of `mask` are here, then hands each the `bytes` of every lane: `all` has
// room for 32. With `bytes` 0 it is __syncwarp(), and orders memory.
void emulator_exchange(int line, const char* name, unsigned mask, const void* mine, void* all,
                       unsigned bytes);
unsigned emulator_active_mask(int line);
// The lanes that come here together go on together, and see what the others have written.
void emulator_lock_step(int line);
// A shuffle reads `lane`, which is not in `mask`: returns in lenient mode, else does not return.
void emulator_foreign_lane(int line, const char* name, unsigned mask, int lane);

// An access that the compiler does not instrument; `kind` is one of emulator::Access.
void emulator_access(int line, const void* address, unsigned bytes, int kind);
[[noreturn]] void emulator_fail(int line, const char* message);

void emulator_copy_async(int line, void* to, const void* from, unsigned bytes, unsigned from_bytes);
void emulator_copy_commit();
void emulator_copy_wait(int groups_left);
// The pointer whose low 32 bits __cvta_generic_to_shared() gave.
void* emulator_shared_pointer(int line, unsigned address);
}

namespace emulator {
enum Access : int { kRead = 0, kWrite = 1, kAtomic = 2 };
}
