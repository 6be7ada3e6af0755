// The inline PTX that TVM emits. translation.py rewrites each asm statement into one of these.
#pragma once

#define __cvta_generic_to_shared(P) (reinterpret_cast<size_t>(P))

namespace emulator {

EMULATOR_INLINE void copy_async(int line, unsigned to, const void* from, int bytes,
                                int from_bytes) {
  emulator_copy_async(line, emulator_shared_pointer(line, to), from, bytes, from_bytes);
}

// ldmatrix.sync.aligned.m8n8.xN(.trans).b16: lanes 8i..8i+7 give the rows of matrix i; each lane
// gets two neighbouring elements of one row (or column) of each matrix.
template <int kMatrices, bool kTransposed>
EMULATOR_HIDDEN void load_matrix(int line, unsigned address, unsigned* const (&out)[kMatrices]) {
  void* mine = emulator_shared_pointer(line, address);
  void* rows[32];
  if (lane() < 8 * kMatrices) emulator_access(line, mine, 16, kRead);
  emulator_exchange(line, "ldmatrix", ~0u, &mine, rows, sizeof mine);
  for (int i = 0; i < kMatrices; ++i) {
    unsigned short pair[2];
    for (int e = 0; e < 2; ++e) {
      const int own = lane() / 4, other = lane() % 4 * 2 + e;
      const int row = kTransposed ? other : own, column = kTransposed ? own : other;
      pair[e] = static_cast<const unsigned short*>(rows[8 * i + row])[column];
    }
    *out[i] = pair[0] | unsigned(pair[1]) << 16;
  }
}

template <class T>
EMULATOR_HIDDEN float element(const unsigned* registers, int index) {
  T value;
  memcpy(&value, reinterpret_cast<const char*>(registers) + index * sizeof(T), sizeof(T));
  return float(value);
}

// mma.sync.aligned.m16n8kK.row.col: D = A * B + C. Fragments lie in registers as the PTX ISA says:
// lane 4r + c holds row r (and r + 8) of A, column r of B, and columns 2c, 2c + 1 of C and D; a
// register holds neighbouring elements of k, and further registers the next part of k.
template <int kK, class TA, class TB, class TD, class Register, int kA, int kB, int kC>
EMULATOR_HIDDEN void multiply(int line, Register* const (&d)[kC], const unsigned (&a)[kA],
                              const unsigned (&b)[kB], const Register (&c)[kC]) {
  constexpr int kPerRegister = 4 / sizeof(TA), kPart = 4 * kPerRegister;
  struct Fragments {
    unsigned a[kA], b[kB];
  } mine, all[32];
  memcpy(mine.a, a, sizeof mine.a);
  memcpy(mine.b, b, sizeof mine.b);
  emulator_exchange(line, "mma.sync", ~0u, &mine, all, sizeof(Fragments));
  TD sums[4];
  memcpy(sums, c, sizeof sums);
  for (int i = 0; i < 4; ++i) {
    const int row = lane() / 4 + 8 * (i / 2), column = lane() % 4 * 2 + i % 2;
    double sum = 0;
    for (int k = 0; k < kK; ++k) {
      const int part = k / kPart, owner = k % kPart / kPerRegister, e = k % kPerRegister;
      sum += double(element<TA>(&all[row % 8 * 4 + owner].a[part * 2 + row / 8], e)) *
             double(element<TB>(&all[column * 4 + owner].b[part], e));
    }
    if (std::is_integral<TD>::value) {
      sums[i] = TD(int64_t(sum) + int64_t(double(float(sums[i]))));
    } else {
      sums[i] = TD(float(sum + double(float(sums[i]))));
    }
  }
  Register out[kC];
  memcpy(out, sums, sizeof sums);
  for (int i = 0; i < kC; ++i) *d[i] = out[i];
}

}  // namespace emulator
