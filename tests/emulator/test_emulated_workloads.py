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


def compare(name: str, policy: str, dtype: str, size: str, **settings) -> None:
    mod = build(name, dtype, size)
    pipeline = relax.get_pipeline("tvm_fusion", policy=policy)
    executable = tvm.compile(mod, make_cuda_target(), relax_pipeline=pipeline)
    arrays, want = unfused(name, dtype, size)
    with emulator.configure(**settings):
        # "naive" gives each buffer its exact size, so that the check of bounds is exact.
        machine = relax.VirtualMachine(executable, tvm.cuda(0), memory_cfg="naive")
        got = machine["main"](*[tvm.runtime.tensor(a, tvm.cuda(0)) for a in arrays])
    # At full size sums of thousands of terms, in another order.
    assert_close([got.numpy()], want, 1e-4 if size == "full" else None)


@pytest.mark.parametrize(
    ("policy", "dtype"),
    [
        ("dominator", "float32"),
        ("stitch", "float32"),
        ("stitch", "float16"),
        ("stitch", "bfloat16"),
    ],
)
@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_small_workloads_in_check_mode(name, policy, dtype, emulated):
    compare(name, policy, dtype, "small", check=True)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_written_kernels_read_each_input_once_and_without_bank_conflicts(name, dtype, emulated):
    """An input that all rows share, like the weight of a norm, once for each thread block."""
    mod = build(name, dtype, "small")
    with tf.record() as trace:
        executable = tvm.compile(mod, make_cuda_target(), relax_pipeline="tvm_fusion")
    arrays = [tvm.runtime.tensor(a, tvm.cuda(0)) for a in random_inputs(mod, seed=3)]
    machine = relax.VirtualMachine(executable, tvm.cuda(0), memory_cfg="naive")
    with emulator.configure(profile=True):
        machine["main"](*arrays)
    written = {f"{name}_kernel" for name, rule in trace.rules.items() if "Stitched" in rule}
    kernels = [kernel for kernel in emulator.profile().kernels if kernel.name in written]
    assert kernels
    for kernel in kernels:
        for argument in kernel.arguments:
            times = min(argument.loads_per_element, argument.loads_per_element_in_block)
            assert times <= 1.05, (kernel.name, argument.name)
        wavefronts = kernel.total("transactions", "shared")
        assert wavefronts <= 1.1 * kernel.total("least_transactions", "shared"), kernel.name


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["dominator", "stitch"])
@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_full_workloads(name, policy, emulated):
    compare(name, policy, "float32", "full")
