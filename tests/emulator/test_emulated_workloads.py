"""Every workload, fused by each policy, computes on the emulator what it computes unfused."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import tvm
from conftest import QUICK_LLVM, make_cuda_target
from support import assert_close, run

from tvm_fusion import emulator
from tvm_fusion.workloads import WORKLOADS, random_inputs, small


@cache
def unfused(name: str, dtype: str) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Arguments and results on the CPU, every operator by itself."""
    mod = small(name, dtype=dtype)
    arrays = random_inputs(mod, seed=3)
    with tvm.transform.PassContext(disabled_pass=["FuseOps"]):
        executable = tvm.compile(mod, tvm.target.Target(QUICK_LLVM))
    return arrays, run(executable, arrays)


def compare(name: str, policy: str, dtype: str, mod: tvm.IRModule, **settings) -> None:
    from tvm import relax

    pipeline = relax.get_pipeline("tvm_fusion", policy=policy)
    executable = tvm.compile(mod, make_cuda_target(), relax_pipeline=pipeline)
    arrays, want = unfused(name, dtype)
    with emulator.configure(**settings):
        # "naive" gives each buffer its exact size, so that the check of bounds is exact.
        machine = relax.VirtualMachine(executable, tvm.cuda(0), memory_cfg="naive")
        got = machine["main"](*[tvm.runtime.tensor(a, tvm.cuda(0)) for a in arrays])
    assert_close([got.numpy()], want)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("policy", ["single_chain", "dominator"])
@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_small_workloads_in_check_mode(name, policy, dtype, emulated):
    compare(name, policy, dtype, small(name, dtype=dtype), check=True)
