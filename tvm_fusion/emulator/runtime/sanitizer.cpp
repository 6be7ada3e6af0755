// The functions that g++'s instrumentation calls. Its own run-time libraries are not linked:
// -fsanitize=thread is used for its call at each memory access, -fsanitize=undefined for its
// checks of arithmetic and array indices.
#include "runtime.h"

using emulator::check_access;
using emulator::kRead;
using emulator::kWrite;
using emulator::text;
using emulator::worker;

#define PC __builtin_return_address(0)
#define ACCESS(BYTES)                                                                              \
  void __tsan_read##BYTES(void* a) {                                                               \
    check_access(static_cast<char*>(a), BYTES, kRead, 0, PC);                                      \
  }                                                                                                \
  void __tsan_write##BYTES(void* a) {                                                              \
    check_access(static_cast<char*>(a), BYTES, kWrite, 0, PC);                                     \
  }                                                                                                \
  void __tsan_unaligned_read##BYTES(void* a) {                                                     \
    check_access(static_cast<char*>(a), BYTES, kRead, 0, PC);                                      \
  }                                                                                                \
  void __tsan_unaligned_write##BYTES(void* a) {                                                    \
    check_access(static_cast<char*>(a), BYTES, kWrite, 0, PC);                                     \
  }

static void range(char* address, unsigned long bytes, int kind, void* pc) {
  while (bytes) {
    unsigned long part = bytes >= 16 ? 16 : bytes >= 8 ? 8 : bytes >= 4 ? 4 : bytes >= 2 ? 2 : 1;
    while (reinterpret_cast<uintptr_t>(address) % part) part /= 2;
    check_access(address, unsigned(part), kind, 0, pc);
    address += part;
    bytes -= part;
  }
}

// What -fsanitize=undefined passes; only the place and the types are used.
struct Place {
  const char* file;
  unsigned line, column;
};

[[noreturn]] static void undefined(const Place& place, const std::string& message) {
  worker->fail(int(place.line), nullptr, message);
  worker->stop();
}

extern "C" {
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
void __tsan_read_range(void* a, unsigned long n) { range(static_cast<char*>(a), n, kRead, PC); }
void __tsan_write_range(void* a, unsigned long n) { range(static_cast<char*>(a), n, kWrite, PC); }
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_init() {}
void __tsan_vptr_update(void*, void*) {}

#define OVERFLOW(NAME, WHAT)                                                                       \
  void __ubsan_handle_##NAME##_overflow_abort(Place* place, uintptr_t, uintptr_t) {                \
    undefined(*place, "integer overflow in " WHAT);                                                \
  }
OVERFLOW(add, "an addition")
OVERFLOW(sub, "a subtraction")
OVERFLOW(mul, "a multiplication")
OVERFLOW(divrem, "a division, or a division by zero")
void __ubsan_handle_negate_overflow_abort(Place* place, uintptr_t) {
  undefined(*place, "integer overflow in a negation");
}
void __ubsan_handle_shift_out_of_bounds_abort(Place* place, uintptr_t, uintptr_t) {
  undefined(*place, "a shift by more bits than the type has, or of a negative number");
}
void __ubsan_handle_out_of_bounds_abort(Place* place, uintptr_t index) {
  undefined(*place, text("out of bounds: index %ld of an array in the kernel", long(index)));
}
}
