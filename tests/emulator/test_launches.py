"""Kernels that TVM generates, and hand-written ones, give what NumPy gives, in any thread order."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from kernels import ORDERS, launch, relax_module, source_edited, stock
from support import run
from tvm import relax

from tvm_fusion import emulator

op = relax.op

pytestmark = pytest.mark.usefixtures("emulated")


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def layer_norm(x, gamma, beta):
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(var + 1e-5) * gamma + beta


def rms_norm(x, gamma):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * gamma


STOCK = {
    "elementwise": (
        lambda x, y: op.exp(op.add(x, y)), lambda x, y: np.exp(x + y), (37, 129), (129,),
    ),
    "softmax": (lambda x: op.nn.softmax(x), softmax, (19, 300)),
    "layer_norm": (
        lambda x, g, b: op.nn.layer_norm(x, g, b, [-1]), layer_norm, (9, 384), (384,), (384,),
    ),
    "rms_norm": (lambda x, g: op.nn.rms_norm(x, g, [-1]), rms_norm, (9, 256), (256,)),
    "matmul_bias_relu": (
        lambda x, w, b: op.nn.relu(op.add(op.matmul(x, w), b)),
        lambda x, w, b: np.maximum(x @ w + b, 0), (65, 48), (48, 70), (70,),
    ),
    "column_sum": (lambda x: op.sum(x, axis=[0]), lambda x: x.sum(0), (70, 33)),
    "short_rows": (lambda x: op.nn.softmax(x), softmax, (50, 7)),
}  # fmt: skip

#: Largest difference, relative to the largest element; float16 sums are rounded at every step.
TOLERANCE = {"float32": 1e-5, "float16": 2e-2, "bfloat16": 1e-1}


def random_arrays(shapes, dtype):
    generator = np.random.default_rng(0)
    dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    return [(generator.standard_normal(shape) * 0.5).astype(dtype) for shape in shapes]


def assert_near(got, want, dtype):
    got, want = got.astype("float64"), want.astype("float64")
    assert np.isfinite(got).all()
    assert np.abs(got - want).max() <= TOLERANCE[dtype] * np.abs(want).max()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", STOCK)
def test_stock_kernels_in_three_orders(name, dtype, emulated):
    if (name, dtype) == ("layer_norm", "bfloat16"):
        pytest.skip("TVM has no layer_norm in bfloat16")
    build, reference, *shapes = STOCK[name]
    executable = stock(relax_module(build, *shapes, dtype=dtype))
    arrays = random_arrays(shapes, dtype)
    results = []
    for settings in [*ORDERS, {"check": True}, {"check": True, "order": "random", "seed": 2}]:
        with emulator.configure(**settings):
            results += run(executable, arrays, emulated)
    assert_near(results[0], reference(*[a.astype("float64") for a in arrays]), dtype)
    for other in results[1:]:
        np.testing.assert_array_equal(other.view("uint8"), results[0].view("uint8"))


def test_a_network_with_symbolic_batch_and_several_kernels(emulated):
    def network(x, w, b):
        y = op.nn.relu(op.add(op.matmul(x, w), b))
        return op.nn.softmax(op.matmul(y, op.permute_dims(w)))

    executable = stock(relax_module(network, ("n", 24), (24, 40), (40,)))
    for batch in (1, 5, 67):
        x, w, b = random_arrays([(batch, 24), (24, 40), (40,)], "float32")
        want = softmax(np.maximum(x @ w + b, 0) @ w.T)
        before = emulator.launches()
        for settings in ORDERS:
            with emulator.configure(check=True, **settings):
                (got,) = run(executable, [x, w, b], emulated)
            assert_near(got, want, "float32")
        assert emulator.launches() - before >= 2 * len(ORDERS)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "bool"])
def test_integer_types(dtype, emulated):
    def build(x, y):
        return op.logical_and(x, y) if dtype == "bool" else op.maximum(x, y)

    executable = stock(relax_module(build, (33, 5), (33, 5), dtype=dtype))
    generator = np.random.default_rng(0)
    x, y = (generator.integers(0, 2 if dtype == "bool" else 100, (33, 5)).astype(dtype)
            for _ in range(2))  # fmt: skip
    with emulator.configure(check=True):
        (got,) = run(executable, [x, y], emulated)
    np.testing.assert_array_equal(got, x & y if dtype == "bool" else np.maximum(x, y))


COPY = """
extern "C" __global__ void __launch_bounds__(32) k(float4* __restrict__ y, float4* __restrict__ x) {
  int i = (int)blockIdx.x * 32 + (int)threadIdx.x;
  y[i] = x[i];
}
"""


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_copies_of_sixteen_bytes(dtype):
    source = COPY if dtype == "float32" else COPY.replace("float4", "uint4")
    x = np.arange(16 * 4 * 32 // np.dtype(dtype).itemsize).astype(dtype)
    for settings in [*ORDERS, {"check": True}]:
        with emulator.configure(**settings):
            y, _ = launch(source, 4, 32, np.zeros_like(x), x)
        np.testing.assert_array_equal(y, x)


DYNAMIC = """
extern "C" __global__ void __launch_bounds__(256) k(float* __restrict__ y, float* __restrict__ x) {
  extern __shared__ __align__(16) float tile[];
  for (int i = 0; i < 96; ++i) tile[i * 256 + (int)threadIdx.x] = x[i * 256 + (int)threadIdx.x];
  __syncthreads();
  for (int i = 0; i < 96; ++i)
    y[i * 256 + (int)threadIdx.x] = tile[96 * 256 - 1 - (i * 256 + (int)threadIdx.x)];
}
"""


def test_96_kib_of_dynamic_shared_memory():
    x = np.arange(96 * 256, dtype="float32")
    for settings in [*ORDERS, {"check": True}]:
        with emulator.configure(**settings):
            y, _ = launch(DYNAMIC, 1, 256, np.zeros_like(x), x, dynamic=96 * 1024)
        np.testing.assert_array_equal(y, x[::-1])


VOTES = """
extern "C" __global__ void k(int* y) {
  int t = (int)threadIdx.x, all = __syncthreads_and(t < 64), some = __syncthreads_or(t == 63);
  int count = __syncthreads_count(t % 2);
  unsigned even = __ballot_sync(0xffffffffu, t % 2 == 0);
  y[t * 8 + 0] = all; y[t * 8 + 1] = some; y[t * 8 + 2] = count; y[t * 8 + 3] = (int)even;
  y[t * 8 + 4] = __any_sync(0xffffffffu, t == 5); y[t * 8 + 5] = __all_sync(0xffffffffu, t < 32);
  y[t * 8 + 6] = __shfl_xor_sync(0xffffffffu, t, 1);
  if (t % 2) y[t * 8 + 7] = (int)__activemask();
  else y[t * 8 + 7] = __shfl_up_sync(0x55555555u, t, 2);
}
"""


@pytest.mark.parametrize("settings", [*ORDERS, {"check": True, "strict_shuffles": True}], ids=str)
def test_votes_and_shuffles(settings):
    with emulator.configure(**settings):
        (y,) = launch(VOTES, 1, 64, np.zeros(64 * 8, "int32"))
    y = y.reshape(64, 8)
    t = np.arange(64)
    assert (y[:, 0] == 1).all()
    assert (y[:, 1] == 1).all()
    assert (y[:, 2] == 32).all()
    assert (y[:, 3].astype("uint32") == 0x55555555).all()
    np.testing.assert_array_equal(y[:, 4], t < 32)
    np.testing.assert_array_equal(y[:, 5], t < 32)
    np.testing.assert_array_equal(y[:, 6], t ^ 1)
    assert (y[1::2, 7].astype("uint32") == 0xAAAAAAAA).all()
    np.testing.assert_array_equal(y[::2, 7], np.where(t[::2] % 32 < 2, t[::2], t[::2] - 2))


ATOMICS = """
extern "C" __global__ void k(int* sum, int* top, float* total) {
  __shared__ int inside;
  if (threadIdx.x == 0) inside = 0;
  __syncthreads();
  atomicAdd(&inside, (int)threadIdx.x);
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(sum, inside);
  atomicMax(top, (int)(blockIdx.x * blockDim.x + threadIdx.x));
  atomicAdd(total, 0.5f);
  atomicCAS(sum + 1, 0, 7);
}
"""


@pytest.mark.parametrize("settings", [*ORDERS, {"check": True}], ids=str)
def test_atomics(settings):
    with emulator.configure(**settings):
        arrays = np.zeros(2, "int32"), np.zeros(1, "int32"), np.zeros(1, "float32")
        total, top, halves = launch(ATOMICS, 6, 64, *arrays)
    assert total.tolist() == [6 * 64 * 63 // 2, 7]
    assert top[0] == 6 * 64 - 1
    assert halves[0] == 6 * 64 / 2


def test_the_same_module_runs_with_and_without_checks(emulated):
    """Instrumented code is compiled when it is first needed."""
    executable = stock(relax_module(lambda x: op.exp(x), (64,)))
    x = np.linspace(0, 1, 64, dtype="float32")
    for check in (False, True, False):
        with emulator.configure(check=check):
            (got,) = run(executable, [x], emulated)
        np.testing.assert_allclose(got, np.exp(x), rtol=1e-6)


def test_blocks_on_several_cores_give_the_same_bits():
    source = COPY.replace("float4", "float").replace("x[i]", "expf(x[i]) * 1.1f")
    x = np.linspace(-3, 3, 32 * 4096, dtype="float32")
    y, _ = launch(source, 4096, 32, np.zeros_like(x), x)
    with emulator.configure(order="reverse"):  # one after the other
        again, _ = launch(source, 4096, 32, np.zeros_like(x), x)
    np.testing.assert_array_equal(y, again)


def test_source_can_be_edited_on_its_way(emulated):
    """What the mutation tests rest on."""
    with source_edited(lambda code: code.replace("expf(", "logf(")):
        executable = stock(relax_module(lambda x: op.exp(x), (64,)))
    x = np.linspace(1, 2, 64, dtype="float32")
    np.testing.assert_allclose(run(executable, [x], emulated)[0], np.log(x), rtol=1e-5, atol=1e-7)
