"""cp.async, ldmatrix, mma.sync and wmma, as TVM and CUDA programs write them."""

from __future__ import annotations

import numpy as np
import pytest
from kernels import ORDERS, launch

from tvm_fusion import emulator
from tvm_fusion.emulator import EmulatorError

pytestmark = pytest.mark.usefixtures("emulated")

WMMA = """
#include <mma.h>
extern "C" __global__ void __launch_bounds__(32) k(float* d, half* a, half* b) {
  nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, half, nvcuda::wmma::row_major> fa;
  nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, half, nvcuda::wmma::col_major> fb;
  nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> fd;
  nvcuda::wmma::fill_fragment(fd, 0.0f);
  nvcuda::wmma::load_matrix_sync(fa, a, 16);
  nvcuda::wmma::load_matrix_sync(fb, b, 16);
  nvcuda::wmma::mma_sync(fd, fa, fb, fd);
  nvcuda::wmma::store_matrix_sync(d, fd, 16, nvcuda::wmma::mem_row_major);
}
"""

# A (16x16) by rows, B (8x16) by columns, D (16x8).
MMA = """
extern "C" __global__ void __launch_bounds__(32) k(float* d, half* a, half* b) {
  __shared__ __align__(16) half sa[256];
  __shared__ __align__(16) half sb[128];
  int lane = (int)threadIdx.x;
  unsigned to = (unsigned)__cvta_generic_to_shared(sa + lane * 8);
  __asm__ __volatile__("cp.async.cg.shared.global [%0], [%1], %2;\\n"
    :: "r"(to), "l"((void*)(a + lane * 8)), "n"(16));
  if (lane < 16) {
    unsigned tb = (unsigned)__cvta_generic_to_shared(sb + lane * 8);
    __asm__ __volatile__("cp.async.cg.shared.global [%0], [%1], %2;"
      :: "r"(tb), "l"((void*)(b + lane * 8)), "n"(16));
  }
  __asm__ __volatile__("cp.async.commit_group;");
  __asm__ __volatile__("cp.async.wait_group 0;");
  __syncthreads();
  unsigned fa[4], fb[2];
  unsigned pa = (unsigned)__cvta_generic_to_shared(sa + lane % 16 * 16 + lane / 16 * 8);
  __asm__ __volatile__("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\\n"
    : "=r"(fa[0]), "=r"(fa[1]), "=r"(fa[2]), "=r"(fa[3]) : "r"(pa));
  unsigned pb = (unsigned)__cvta_generic_to_shared(sb + lane % 8 * 16 + lane / 8 % 2 * 8);
  __asm__ __volatile__("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];\\n"
    : "=r"(fb[0]), "=r"(fb[1]) : "r"(pb));
  float c[4] = {0, 0, 0, 0};
  __asm__ __volatile__("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
    "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};\\n"
    : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
    : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]),
      "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
  for (int i = 0; i < 4; ++i)
    d[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = c[i];
}
"""


def matrices(columns):
    generator = np.random.default_rng(0)
    a = generator.standard_normal((16, 16)).astype("float16")
    b = generator.standard_normal((columns, 16)).astype("float16")
    return a, b, a.astype("float32") @ b.astype("float32").T


@pytest.mark.parametrize("settings", [*ORDERS, {"check": True}], ids=str)
@pytest.mark.parametrize(("source", "columns"), [(WMMA, 16), (MMA, 8)], ids=["wmma", "mma"])
def test_a_tile_of_a_matrix_product(source, columns, settings):
    a, b, want = matrices(columns)
    with emulator.configure(**settings):
        got, *_ = launch(source, 1, 32, np.zeros(16 * columns, "float32"), a.ravel(), b.ravel())
    np.testing.assert_allclose(got.reshape(want.shape), want, atol=1e-4)


def test_a_missing_wait_and_a_missing_barrier_show():
    a, b, _ = matrices(8)
    arrays = np.zeros(128, "float32"), a.ravel(), b.ravel()
    for missing in ('__asm__ __volatile__("cp.async.wait_group 0;");', "__syncthreads();"):
        with (
            emulator.configure(check=True),
            pytest.raises(EmulatorError, match=r"uninitialised|data race"),
        ):
            launch(MMA.replace(missing, ""), 1, 32, *arrays)
