// Atomic operations on shared and global memory.
//
// The threads of a block are fibers and change only where they wait, so plain code is atomic among
// them; kernels with atomics never run their blocks in parallel. The checks learn that these
// accesses do not race with each other.
#pragma once

#define EMULATOR_ATOMIC(NAME, TYPE, VALUE)                                                         \
  EMULATOR_HIDDEN TYPE NAME(int line, TYPE* address, TYPE operand) {                               \
    emulator_access(line, address, sizeof(TYPE), emulator::kAtomic);                               \
    TYPE old = *address;                                                                           \
    *address = VALUE;                                                                              \
    return old;                                                                                    \
  }
#define EMULATOR_ATOMICS(TYPE)                                                                     \
  EMULATOR_ATOMIC(atomic_add, TYPE, static_cast<TYPE>(old + operand))                                           \
  EMULATOR_ATOMIC(atomic_sub, TYPE, static_cast<TYPE>(old - operand))                                           \
  EMULATOR_ATOMIC(atomic_max, TYPE, old > operand ? old : operand)                                 \
  EMULATOR_ATOMIC(atomic_min, TYPE, old < operand ? old : operand)                                 \
  EMULATOR_ATOMIC(atomic_exchange, TYPE, operand)
#define EMULATOR_BIT_ATOMICS(TYPE)                                                                 \
  EMULATOR_ATOMIC(atomic_and, TYPE, old & operand)                                                 \
  EMULATOR_ATOMIC(atomic_or, TYPE, old | operand)                                                  \
  EMULATOR_ATOMIC(atomic_xor, TYPE, old ^ operand)

namespace emulator {
EMULATOR_ATOMICS(float)
EMULATOR_ATOMICS(double)
EMULATOR_ATOMICS(int)
EMULATOR_ATOMICS(unsigned)
EMULATOR_ATOMICS(long)
EMULATOR_ATOMICS(unsigned long)
EMULATOR_ATOMICS(long long)
EMULATOR_ATOMICS(unsigned long long)
EMULATOR_BIT_ATOMICS(int)
EMULATOR_BIT_ATOMICS(unsigned)
EMULATOR_BIT_ATOMICS(unsigned long)
EMULATOR_BIT_ATOMICS(unsigned long long)
EMULATOR_ATOMIC(atomic_add, half, __hadd(old, operand))
EMULATOR_ATOMIC(atomic_add, half2, __hadd2(old, operand))
EMULATOR_ATOMIC(atomic_add, nv_bfloat16, __hadd(old, operand))
EMULATOR_ATOMIC(atomic_add, nv_bfloat162, __hadd2(old, operand))

template <class T>
EMULATOR_HIDDEN T atomic_compare_and_swap(int line, T* address, T expected, T value) {
  emulator_access(line, address, sizeof(T), kAtomic);
  T old = *address;
  if (!memcmp(&old, &expected, sizeof(T))) *address = value;
  return old;
}
// CUDA converts the operand to the type of the memory, as an overload without templates would.
template <class T>
struct Same {
  using type = T;
};
}  // namespace emulator

#define EMULATOR_ATOMIC_NAME(NAME)                                                                 \
  template <class T>                                                                               \
  EMULATOR_INLINE T emulator_##NAME(int line, T* address, typename emulator::Same<T>::type v) {    \
    return emulator::NAME(line, address, v);                                                       \
  }
EMULATOR_ATOMIC_NAME(atomic_add)
EMULATOR_ATOMIC_NAME(atomic_sub)
EMULATOR_ATOMIC_NAME(atomic_max)
EMULATOR_ATOMIC_NAME(atomic_min)
EMULATOR_ATOMIC_NAME(atomic_exchange)
EMULATOR_ATOMIC_NAME(atomic_and)
EMULATOR_ATOMIC_NAME(atomic_or)
EMULATOR_ATOMIC_NAME(atomic_xor)
template <class T>
EMULATOR_INLINE T emulator_atomic_cas(int line, T* address, typename emulator::Same<T>::type a,
                                      typename emulator::Same<T>::type b) {
  return emulator::atomic_compare_and_swap<T>(line, address, a, b);
}
#define atomicAdd(...) emulator_atomic_add(__LINE__, __VA_ARGS__)
#define atomicSub(...) emulator_atomic_sub(__LINE__, __VA_ARGS__)
#define atomicMax(...) emulator_atomic_max(__LINE__, __VA_ARGS__)
#define atomicMin(...) emulator_atomic_min(__LINE__, __VA_ARGS__)
#define atomicExch(...) emulator_atomic_exchange(__LINE__, __VA_ARGS__)
#define atomicAnd(...) emulator_atomic_and(__LINE__, __VA_ARGS__)
#define atomicOr(...) emulator_atomic_or(__LINE__, __VA_ARGS__)
#define atomicXor(...) emulator_atomic_xor(__LINE__, __VA_ARGS__)
#define atomicCAS(...) emulator_atomic_cas(__LINE__, __VA_ARGS__)
