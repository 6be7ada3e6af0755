// Arithmetic that CUDA has as functions and a CPU does not.
//
// The approximations that nvcc takes under --use_fast_math are not modelled: these are the exact
// functions. Functions of half and bfloat16 go through float and are rounded once.
#pragma once

#define EMULATOR_MIN_MAX(T)                                                                        \
  EMULATOR_INLINE T max(T a, T b) { return a > b ? a : b; }                                        \
  EMULATOR_INLINE T min(T a, T b) { return a < b ? a : b; }
EMULATOR_MIN_MAX(int)
EMULATOR_MIN_MAX(unsigned)
EMULATOR_MIN_MAX(long)
EMULATOR_MIN_MAX(unsigned long)
EMULATOR_MIN_MAX(long long)
EMULATOR_MIN_MAX(unsigned long long)
EMULATOR_INLINE float max(float a, float b) { return fmaxf(a, b); }
EMULATOR_INLINE float min(float a, float b) { return fminf(a, b); }
EMULATOR_INLINE double max(double a, double b) { return fmax(a, b); }
EMULATOR_INLINE double min(double a, double b) { return fmin(a, b); }

#define __expf(x) expf(x)
#define __exp10f(x) exp10f(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __powf(x, y) powf(x, y)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
#define __tanhf(x) tanhf(x)
EMULATOR_INLINE float __fdividef(float a, float b) { return a / b; }
EMULATOR_INLINE float __frcp_rn(float a) { return 1.f / a; }
EMULATOR_INLINE float __fsqrt_rn(float a) { return sqrtf(a); }
EMULATOR_INLINE float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
EMULATOR_INLINE float __fadd_rn(float a, float b) { return a + b; }
EMULATOR_INLINE float __fmul_rn(float a, float b) { return a * b; }
EMULATOR_INLINE float __saturatef(float a) { return fminf(fmaxf(a, 0.f), 1.f); }
EMULATOR_INLINE float rsqrtf(float a) { return 1.f / sqrtf(a); }
EMULATOR_INLINE double rsqrt(double a) { return 1. / sqrt(a); }
EMULATOR_INLINE int __popc(unsigned a) { return __builtin_popcount(a); }
EMULATOR_INLINE int __popcll(unsigned long long a) { return __builtin_popcountll(a); }
EMULATOR_INLINE int __clz(int a) { return a ? __builtin_clz(unsigned(a)) : 32; }
EMULATOR_INLINE int __clzll(long long a) { return a ? __builtin_clzll(a) : 64; }
EMULATOR_INLINE int __ffs(int a) { return __builtin_ffs(a); }
EMULATOR_INLINE unsigned __umulhi(unsigned a, unsigned b) {
  return unsigned((uint64_t(a) * b) >> 32);
}
EMULATOR_INLINE int __mulhi(int a, int b) { return int((int64_t(a) * b) >> 32); }

#define EMULATOR_BITS(NAME, TO, FROM)                                                              \
  EMULATOR_INLINE TO NAME(FROM value) {                                                            \
    TO bits;                                                                                       \
    static_assert(sizeof(TO) == sizeof(FROM), "same size");                                        \
    __builtin_memcpy(&bits, &value, sizeof(TO));                                                   \
    return bits;                                                                                   \
  }
EMULATOR_BITS(__float_as_int, int, float)
EMULATOR_BITS(__int_as_float, float, int)
EMULATOR_BITS(__float_as_uint, unsigned, float)
EMULATOR_BITS(__uint_as_float, float, unsigned)
EMULATOR_BITS(__double_as_longlong, long long, double)
EMULATOR_BITS(__longlong_as_double, double, long long)

EMULATOR_INLINE int __dp4a(int a, int b, int sum) {
  for (int i = 0; i < 4; ++i) {
    sum += int(int8_t(unsigned(a) >> (8 * i))) * int(int8_t(unsigned(b) >> (8 * i)));
  }
  return sum;
}
template <class T>
EMULATOR_INLINE T __ldg(const T* address) {
  return *address;
}

#define EMULATOR_HALF_FUNCTION(NAME, FUNCTION)                                                     \
  EMULATOR_INLINE half NAME(half x) { return __float2half_rn(FUNCTION(__half2float(x))); }         \
  EMULATOR_INLINE nv_bfloat16 NAME(nv_bfloat16 x) {                                                \
    return __float2bfloat16_rn(FUNCTION(__bfloat162float(x)));                                     \
  }
EMULATOR_HALF_FUNCTION(hexp, expf)
EMULATOR_HALF_FUNCTION(hexp2, exp2f)
EMULATOR_HALF_FUNCTION(hexp10, exp10f)
EMULATOR_HALF_FUNCTION(hlog, logf)
EMULATOR_HALF_FUNCTION(hlog2, log2f)
EMULATOR_HALF_FUNCTION(hlog10, log10f)
EMULATOR_HALF_FUNCTION(hsqrt, sqrtf)
EMULATOR_HALF_FUNCTION(hrsqrt, rsqrtf)
EMULATOR_HALF_FUNCTION(hrcp, 1.f /)
EMULATOR_HALF_FUNCTION(hsin, sinf)
EMULATOR_HALF_FUNCTION(hcos, cosf)
EMULATOR_HALF_FUNCTION(hceil, ceilf)
EMULATOR_HALF_FUNCTION(hfloor, floorf)
EMULATOR_HALF_FUNCTION(htrunc, truncf)
EMULATOR_HALF_FUNCTION(hrint, rintf)
EMULATOR_HALF_FUNCTION(htanh, tanhf)
