"""Every workload, fused by each policy, computes on the emulator what it computes unfused."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import tvm
from conftest import QUICK_LLVM, make_cuda_target
from support import assert_close, run
from tvm import relax

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


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("policy", ["single_chain", "dominator"])
@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_small_workloads_in_check_mode(name, policy, dtype, emulated):
    compare(name, policy, dtype, "small", check=True)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["single_chain", "dominator"])
@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_full_workloads(name, policy, emulated):
    compare(name, policy, "float32", "full")
