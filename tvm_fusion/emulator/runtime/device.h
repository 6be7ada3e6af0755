// Force-included before every kernel: makes g++ take the CUDA C++ that TVM generates.
//
// Types and conversions (float4, half, bfloat16, fp8) are NVIDIA's own, from their headers, which
// also work on a CPU. This file has the language; its parts have what threads do together
// (warp.h), atomics (atomics.h), arithmetic (arithmetic.h) and inline PTX (ptx.h).
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include <vector_types.h>
#include <vector_functions.h>

// g++ instruments assignments, but not structures that are arguments or results of a call, as a
// half is in `__hsub(*a, *b)`. So all that takes a half is inlined: NVIDIA's functions, which are
// `static __attribute__((unused))` on a CPU, by the name of that attribute, and the functions of
// the source by __device__ below. Not so the conversions, which are long; kernels call them
// through the wrappers below.
struct __half;
struct __nv_bfloat16;
static float __half2float(const __half) __attribute__((noinline));
static __half __float2half(const float) __attribute__((noinline));
static __half __float2half_rn(const float) __attribute__((noinline));
static __nv_bfloat16 __float2bfloat16(const float) __attribute__((noinline));
static __nv_bfloat16 __float2bfloat16_rn(const float) __attribute__((noinline));
#define unused always_inline
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#undef unused
#include <cuda_fp8.h>

#include "abi.h"

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __launch_bounds__
#undef __forceinline__
#undef __grid_constant__
#define __global__
#define __device__ __attribute__((always_inline))
#define __host__
#define __constant__ static
#define __grid_constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
// g++ wants the attribute where CUDA accepts the keyword.
#define alignas(N) __attribute__((aligned(N)))
#define __CUDA_ARCH__ EMULATOR_ARCH
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0

#define EMULATOR_INLINE static inline __attribute__((always_inline))
// Helpers whose own accesses are none of the kernel's.
#define EMULATOR_HIDDEN static __attribute__((noinline, no_sanitize("thread", "undefined")))

namespace emulator {

// Read by assembly, for two reasons: instrumentation must not see it, and since it never changes
// within a thread, g++ may keep it in a register.
EMULATOR_INLINE const Thread* self() {
  const Thread* thread;
  asm("movq emulator_thread@gottpoff(%%rip), %0\n\tmovq %%fs:(%0), %0" : "=r"(thread));
  return thread;
}
template <size_t kOffset>
EMULATOR_INLINE unsigned field() {
  unsigned value;
  asm("movl %c2(%1), %0" : "=r"(value) : "r"(self()), "i"(kOffset));
  return value;
}
template <size_t kOffset>
EMULATOR_INLINE char* pointer() {
  char* value;
  asm("movq %c2(%1), %0" : "=r"(value) : "r"(self()), "i"(kOffset));
  return value;
}
template <size_t kOffset>
EMULATOR_INLINE uint3 triple() {
  return {field<kOffset>(), field<kOffset + 4>(), field<kOffset + 8>()};
}
EMULATOR_INLINE int lane() { return static_cast<int>(field<offsetof(Thread, lane)>()); }

// Calls a kernel with the array of argument addresses that CUDA passes.
template <class... A, size_t... I>
EMULATOR_INLINE void call_kernel(void (*kernel)(A...), void** arguments, std::index_sequence<I...>) {
  kernel(*static_cast<typename std::remove_reference<A>::type*>(arguments[I])...);
}
template <class... A>
EMULATOR_INLINE void call_kernel(void (*kernel)(A...), void** arguments) {
  call_kernel(kernel, arguments, std::index_sequence_for<A...>());
}
// 'p' for each argument that is a pointer, '-' for the others.
template <class... A>
struct Signature {
  static constexpr char text[] = {(std::is_pointer<A>::value ? 'p' : '-')..., '\0'};
};
template <class... A>
constexpr char Signature<A...>::text[];
template <class... A>
constexpr const char* signature(void (*)(A...)) {
  return Signature<A...>::text;
}

}  // namespace emulator

#define threadIdx (emulator::triple<offsetof(emulator::Thread, thread_index)>())
#define blockIdx (emulator::triple<offsetof(emulator::Thread, block_index)>())
#define blockDim (emulator::triple<offsetof(emulator::Thread, block_size)>())
#define gridDim (emulator::triple<offsetof(emulator::Thread, grid_size)>())
#define warpSize 32

// Static shared memory. The array that the source declares is only a template, from which the
// linker computes a layout: one section per kernel. Each block has a copy of that section, and
// NAME refers into the block's copy.
#define EMULATOR_SHARED(SECTION, TYPE, NAME, DIMS, ALIGN)                                          \
  typedef TYPE NAME##_array DIMS;                                                                  \
  static __attribute__((section(#SECTION), used, aligned(ALIGN))) char                             \
      NAME##_place[sizeof(NAME##_array)];                                                          \
  NAME##_array& NAME = *reinterpret_cast<NAME##_array*>(                                           \
      emulator::pointer<offsetof(emulator::Thread, static_shared)>() +                             \
      (NAME##_place - __start_##SECTION));
#define EMULATOR_SHARED_SECTION(SECTION)                                                           \
  extern "C" {                                                                                     \
  extern char __start_##SECTION[] __attribute__((weak, visibility("hidden")));                     \
  extern char __stop_##SECTION[] __attribute__((weak, visibility("hidden")));                      \
  }
#define EMULATOR_DYNAMIC_SHARED(TYPE, NAME)                                                        \
  TYPE* const NAME = reinterpret_cast<TYPE*>(                                                      \
      emulator::pointer<offsetof(emulator::Thread, dynamic_shared)>());

// What the runtime looks up about a kernel: how to call it, its launch bounds, the kinds and
// names of its arguments, and where its static shared memory begins and ends.
#define EMULATOR_KERNEL(NAME, SECTION, BOUND, ARGUMENTS)                                           \
  extern "C" void NAME##__call(void** arguments) { emulator::call_kernel(NAME, arguments); }       \
  extern "C" {                                                                                     \
  extern const int NAME##__bound;                                                                  \
  const int NAME##__bound = BOUND;                                                                 \
  extern const char* const NAME##__signature;                                                      \
  const char* const NAME##__signature = emulator::signature(NAME);                                 \
  extern const char* const NAME##__arguments;                                                      \
  const char* const NAME##__arguments = ARGUMENTS;                                                 \
  extern char* const NAME##__shared[2];                                                            \
  char* const NAME##__shared[2] = {__start_##SECTION, __stop_##SECTION};                           \
  }

#define EMULATOR_CONVERSION(TO, NAME, FROM)                                                        \
  namespace emulator {                                                                             \
  EMULATOR_INLINE TO NAME(FROM value) { return ::NAME(value); }                                    \
  }
EMULATOR_CONVERSION(float, __half2float, __half)
EMULATOR_CONVERSION(__half, __float2half, float)
EMULATOR_CONVERSION(__half, __float2half_rn, float)
EMULATOR_CONVERSION(__nv_bfloat16, __float2bfloat16, float)
EMULATOR_CONVERSION(__nv_bfloat16, __float2bfloat16_rn, float)

#include "warp.h"
#include "atomics.h"
#include "arithmetic.h"
#include "ptx.h"

#define __half2float emulator::__half2float
#define __float2half emulator::__float2half
#define __float2half_rn emulator::__float2half_rn
#define __float2bfloat16 emulator::__float2bfloat16
#define __float2bfloat16_rn emulator::__float2bfloat16_rn
