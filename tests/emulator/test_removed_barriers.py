"""Take each __syncthreads() out of TVM's kernels: what can change a result is reported."""

from __future__ import annotations

import numpy as np
import pytest
from kernels import launch, relax_module, source_edited, stock
from support import run
from test_launches import STOCK, random_arrays

from tvm_fusion import emulator
from tvm_fusion.emulator import EmulatorError

BARRIER = "__syncthreads();"

#: Barriers that may go, by their number in the kernel, and why.
SAME_THREAD = "thread 0 reads what it has written itself; only the barrier after that publishes it"
FIRST_USE = "nothing has touched the buffer that is written behind it"
HARMLESS = {
    ("softmax", "float32"): {1: SAME_THREAD, 4: SAME_THREAD},
    ("layer_norm", "float32"): {1: SAME_THREAD, 4: SAME_THREAD},
    ("rms_norm", "float32"): {1: SAME_THREAD},
    ("matmul_bias_relu", "float32"): {},
    ("softmax", "float16"): {1: SAME_THREAD, 4: SAME_THREAD},
    ("layer_norm", "float16"): {1: SAME_THREAD, 4: SAME_THREAD},
    ("rms_norm", "float16"): {1: SAME_THREAD},
    ("matmul_bias_relu", "float16"): {},
    ("softmax", "bfloat16"): {0: FIRST_USE, 5: SAME_THREAD, 7: FIRST_USE, 12: SAME_THREAD},
}


def without_barrier(source: str, index: int) -> str:
    parts = source.split(BARRIER)
    return BARRIER.join(parts[: index + 1]) + BARRIER.join(parts[index + 1 :])


def is_reported(mod, arrays, source: str, device) -> bool:
    with source_edited(lambda _: source):
        executable = stock(mod)
    for order in ("forward", "reverse"):
        with emulator.configure(check=True, order=order):
            try:
                run(executable, arrays, device)
            except EmulatorError as error:
                return "data race" in str(error) or "uninitialised" in str(error)
    return False


@pytest.mark.parametrize(("name", "dtype"), HARMLESS)
def test_every_barrier_removed_in_turn(name, dtype, emulated):
    build, _, *shapes = STOCK[name]
    mod = relax_module(build, *shapes, dtype=dtype)
    arrays = random_arrays(shapes, dtype)
    sources: list[str] = []
    with source_edited(lambda source: sources.append(source) or source):
        stock(mod)
    count = sources[0].count(BARRIER)
    assert count
    silent = {
        index
        for index in range(count)
        if not is_reported(mod, arrays, without_barrier(sources[0], index), emulated)
    }
    assert silent == set(HARMLESS[name, dtype])


@pytest.mark.parametrize("dtype", ["half", "nv_bfloat16", "half2"])
@pytest.mark.parametrize(
    "use", ["a - t[0]", "max(t[0], a)", "hexp(t[0])", "t[0]", "__hadd(a, t[0])", "a += t[0]"]
)
def test_halves_are_seen_however_they_are_passed(use, dtype, emulated):
    """g++ does not instrument a structure that is an argument of a call that is not inlined."""
    if dtype == "half2" and ("max" in use or "hexp" in use):
        pytest.skip("not of vectors")
    if dtype == "half2":
        use = use.replace("__hadd", "__hadd2")
    source = f"""
__device__ {dtype} max({dtype} a, {dtype} b) {{ return __hgt(a, b) ? a : b; }}
extern "C" __global__ void k({dtype}* y, {dtype}* x) {{
  __shared__ {dtype} t[1];
  {dtype} a = x[threadIdx.x];
  if (threadIdx.x == 0) t[0] = x[0];
  __syncthreads();
  y[threadIdx.x] = {use};
}}
"""
    if dtype == "half2":
        source = source.replace("return __hgt(a, b) ? a : b;", "return a;")
    x = np.zeros(64 * 2, "uint16")
    with emulator.configure(check=True):
        launch(source, 1, 64, x, x)
        with pytest.raises(EmulatorError, match=r"data race|uninitialised"):
            launch(source.replace(BARRIER, ""), 1, 64, x, x)


@pytest.mark.parametrize("use", ["__float2half_rn(1.f)", "__float2half(1.f)", "half(1.f)", "a + a"])
def test_results_of_calls_are_seen(use, emulated):
    source = f"""
extern "C" __global__ void k(half* y, half* x) {{
  half a = x[threadIdx.x];
  y[threadIdx.x / 2] = {use};
}}
"""
    x = np.zeros(64, "float16")
    with emulator.configure(check=True), pytest.raises(EmulatorError, match="data race"):
        launch(source, 1, 64, x, x)
