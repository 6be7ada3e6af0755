"""Random modules: well-formed, unchanged input, one kernel a group, and the unfused result."""

from __future__ import annotations

import pytest
import tvm
from conftest import QUICK_LLVM
from random_modules import random_module
from support import assert_close, legalize, prim_funcs, run_llvm
from tvm import relax

import tvm_fusion as tf
from tvm_fusion.analysis.traffic import measure
from tvm_fusion.workloads import random_inputs

#: float32 with the same operations in the same order: what differs is that LLVM may contract to
#: fused multiply-adds across what were function borders, a few units in the last place for each of
#: a dozen ops, and more where a select sits close to its threshold.
TOLERANCE = 1e-4

FEW, MANY = range(12), range(12, 400)


def check(seed: int, policy: str, cuda_target: tvm.target.Target) -> None:
    legal = legalize(random_module(seed))
    before = legal.script()
    immutable = tvm.transform.PassContext(config={"testing.immutable_module": True})
    with immutable, tvm.target.Target(QUICK_LLVM):
        fused = tf.OperatorFusion(policy=policy)(legal)
    assert legal.script() == before
    assert relax.analysis.check_well_formed(fused)
    args = random_inputs(legal, seed=seed)
    assert_close(run_llvm(fused, args), run_llvm(legal, args), TOLERANCE)
    with immutable, cuda_target, tf.record() as trace:
        scheduled = tf.OperatorFusion(policy=policy)(legal)
    assert relax.analysis.check_well_formed(scheduled)
    for group in trace.groups:
        assert measure(prim_funcs(scheduled)[group.name]).kernels == 1


@pytest.mark.parametrize("policy", ["single_chain", "dominator", "stitch"])
@pytest.mark.parametrize("seed", FEW)
def test_random_modules(seed, policy, cuda_target):
    check(seed, policy, cuda_target)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["single_chain", "dominator", "stitch"])
@pytest.mark.parametrize("seed", MANY)
def test_many_random_modules(seed, policy, cuda_target):
    check(seed, policy, cuda_target)
