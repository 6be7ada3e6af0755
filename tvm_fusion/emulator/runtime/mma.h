// nvcuda::wmma, which a kernel gets with #include <mma.h>.
//
// CUDA leaves open which lane holds what. Here fragments of A and B hold the whole tile in every
// lane; accumulators are spread over the lanes.
#pragma once

namespace nvcuda {
namespace wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32;
}
template <class T>
struct Stored {
  using type = T;
};
template <>
struct Stored<precision::tf32> {
  using type = float;
};

template <class Use, int M, int N, int K, class T, class Layout = void>
struct fragment {
  static constexpr bool is_accumulator = std::is_same<Use, accumulator>::value;
  static constexpr int rows = std::is_same<Use, matrix_b>::value ? K : M;
  static constexpr int columns = std::is_same<Use, matrix_a>::value ? K : N;
  static constexpr int num_elements = is_accumulator ? rows * columns / 32 : rows * columns;
  using element_type = typename Stored<T>::type;
  element_type x[num_elements];
};

template <class Fragment, class Value>
static inline void fill_fragment(Fragment& fragment, Value value) {
  for (auto& element : fragment.x) element = typename Fragment::element_type(value);
}

template <class Use, int M, int N, int K, class T, class Layout, class P>
static inline void load_matrix_sync(fragment<Use, M, N, K, T, Layout>& to, const P* from,
                                    unsigned stride) {
  using F = fragment<Use, M, N, K, T, Layout>;
  emulator::converge(0, "wmma::load_matrix_sync");
  for (int r = 0; r < F::rows; ++r) {
    for (int c = 0; c < F::columns; ++c) {
      const bool by_row = std::is_same<Layout, row_major>::value;
      to.x[r * F::columns + c] = from[by_row ? r * stride + c : c * stride + r];
    }
  }
}

template <int M, int N, int K, class T, class P>
static inline void load_matrix_sync(fragment<accumulator, M, N, K, T, void>& to, const P* from,
                                    unsigned stride, layout_t layout) {
  emulator::converge(0, "wmma::load_matrix_sync");
  for (int i = 0; i < to.num_elements; ++i) {
    const int e = i * 32 + emulator::lane(), r = e / N, c = e % N;
    to.x[i] = from[layout == mem_row_major ? r * stride + c : c * stride + r];
  }
}

template <int M, int N, int K, class T, class P>
static inline void store_matrix_sync(P* to, const fragment<accumulator, M, N, K, T, void>& from,
                                     unsigned stride, layout_t layout) {
  emulator::converge(0, "wmma::store_matrix_sync");
  for (int i = 0; i < from.num_elements; ++i) {
    const int e = i * 32 + emulator::lane(), r = e / N, c = e % N;
    to[layout == mem_row_major ? r * stride + c : c * stride + r] = from.x[i];
  }
}

template <int M, int N, int K, class TD, class TC, class A, class B>
static inline void mma_sync(fragment<accumulator, M, N, K, TD, void>& d, const A& a, const B& b,
                            const fragment<accumulator, M, N, K, TC, void>& c) {
  emulator::converge(0, "wmma::mma_sync");
  using Sum = typename std::conditional<std::is_integral<TD>::value, int, float>::type;
  for (int i = 0; i < d.num_elements; ++i) {
    const int e = i * 32 + emulator::lane(), row = e / N, column = e % N;
    Sum sum = Sum(c.x[i]);
    for (int k = 0; k < K; ++k) sum += Sum(a.x[row * K + k]) * Sum(b.x[k * N + column]);
    d.x[i] = TD(sum);
  }
}

}  // namespace wmma
}  // namespace nvcuda
