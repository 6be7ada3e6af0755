"""Every workload, fused by each policy, computes on the emulator what it computes unfused."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import tvm
from conftest import QUICK_LLVM, make_cuda_target
from support import assert_close, run
from tvm import relax

import tvm_fusion as tf
from tvm_fusion import emulator
from tvm_fusion.workloads import WORKLOADS, random_inputs, small


def build(name: str, dtype: str, size: str) -> tvm.IRModule:
    return WORKLOADS[name](dtype=dtype) if size == "full" else small(name, dtype=dtype)


@cache
def unfused(name: str, dtype: str, size: str) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Arguments and results on the CPU, every operator by itself."""
    mod = build(name, dtype, size)
    arrays = random_inputs(mod, seed=3)
    with tvm.transform.PassContext(disabled_pass=["FuseOps"]):
        executable = tvm.compile(mod, tvm.target.Target(QUICK_LLVM))
    return arrays, run(executable, arrays)


#: Networks that stand for the others where kernels of other types or policies are run.
SOME = ("gpt2_block", "ln_gelu_res", "mamba_block", "softmax_chain")


def compare(name: str, policy: str, dtype: str, size: str, **settings) -> set[str]:
    """Run a network fused and unfused; returns the kernels that we wrote."""
    mod = build(name, dtype, size)
    pipeline = relax.get_pipeline("tvm_fusion", policy=policy)
    with tf.record() as trace:
        executable = tvm.compile(mod, make_cuda_target(), relax_pipeline=pipeline)
    arrays, want = unfused(name, dtype, size)
    with emulator.configure(**settings):
        # "naive" gives each buffer its exact size, so that the check of bounds is exact.
        machine = relax.VirtualMachine(executable, tvm.cuda(0), memory_cfg="naive")
        got = machine["main"](*[tvm.runtime.tensor(a, tvm.cuda(0)) for a in arrays])
    # At full size sums of thousands of terms, in another order.
    assert_close([got.numpy()], want, 1e-4 if size == "full" else None)
    return {f"{function}_kernel" for function, rule in trace.rules.items() if "Stitched" in rule}


def check_loads(name: str, dtype: str) -> None:
    """Each input is read once; one that all rows share, like a norm's weight, once a block."""
    written = compare(name, "stitch", dtype, "small", profile=True)
    kernels = [kernel for kernel in emulator.profile().kernels if kernel.name in written]
    assert kernels or not written
    for kernel in kernels:
        for argument in kernel.arguments:
            times = min(argument.loads_per_element, argument.loads_per_element_in_block)
            assert times <= 1.05, (kernel.name, argument.name)
        wavefronts = kernel.total("transactions", "shared")
        assert wavefronts <= 1.1 * kernel.total("least_transactions", "shared"), kernel.name


@pytest.mark.parametrize("name", ["ln_gelu_res", "softmax_chain"])
def test_written_kernels_read_each_input_once(name, emulated):
    check_loads(name, "float32")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_written_kernels_of_all_workloads_read_each_input_once(name, dtype, emulated):
    check_loads(name, dtype)


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_stitched_workloads_in_check_mode(name, emulated):
    compare(name, "stitch", "float32", "small", check=True)


@pytest.mark.parametrize(
    ("policy", "dtype"),
    [("dominator", "float32"), ("stitch", "float16"), ("stitch", "bfloat16")],
)
@pytest.mark.parametrize("name", SOME)
def test_small_workloads_in_check_mode(name, policy, dtype, emulated):
    compare(name, policy, dtype, "small", check=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "dtype"),
    [("dominator", "float16"), ("stitch", "float16"), ("stitch", "bfloat16")],
)
@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_all_small_workloads_in_check_mode(name, policy, dtype, emulated):
    compare(name, policy, dtype, "small", check=True)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["dominator", "stitch"])
@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_full_workloads(name, policy, emulated):
    compare(name, policy, "float32", "full")
