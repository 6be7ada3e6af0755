"""Plans travel from FuseOps to Schedule, and each distinct group is scheduled once in a build."""

from __future__ import annotations

import json
from collections import Counter

import pytest
import tvm
import tvm_ffi
from support import legalize, prim_funcs
from tvm import relax
from tvm.s_tir import dlight as dl

import tvm_fusion as tf
from tvm_fusion.planning import read_plans
from tvm_fusion.planning.plan import PLANS_ATTR
from tvm_fusion.schedule import stitched
from tvm_fusion.schedule.kernel import inspect
from tvm_fusion.transform.kernels import KernelTrial
from tvm_fusion.workloads import small


@pytest.fixture(autouse=True)
def _fresh_cache():
    """Results of other tests must not hide what is made here."""
    KernelTrial._cache.clear()
    yield
    KernelTrial._cache.clear()


def fused(mod, target):
    with target:
        return relax.transform.FuseTIR()(tf.transform.FuseOps()(legalize(mod)))


def schedule(mod, target):
    with target:
        return prim_funcs(tf.transform.Schedule()(mod))


def test_the_plan_of_a_group_is_in_the_module(cuda_target):
    mod = fused(small("ln_gelu_res"), cuda_target)
    (plan,) = read_plans(mod).values()
    assert plan.rule == "tvm_fusion.Stitched"
    assert plan.kernel is not None
    assert plan.kernel.mode == "row"
    assert plan.threads == plan.kernel.threads_per_block


def test_schedule_writes_the_kernel_from_the_plan_that_arrives(cuda_target):
    mod = fused(small("ln_gelu_res"), cuda_target)
    data = json.loads(str(mod.attrs[PLANS_ATTR]))
    (name,) = data["plans"]
    planned = read_plans(mod)[name].kernel.threads_per_block
    data["plans"][name]["kernel"]["threads"] *= 2
    KernelTrial._cache.clear()
    (kernel,) = schedule(mod.with_attr(PLANS_ATTR, json.dumps(data)), cuda_target).values()
    assert inspect(kernel, "").threads == planned * 2


@pytest.mark.parametrize("damage", ["absent", "no kernel", "of another function"])
def test_without_a_fitting_plan_the_same_kernel_is_planned_anew(damage, cuda_target):
    mod = fused(small("ln_gelu_res"), cuda_target)
    want = schedule(mod, cuda_target)
    data = json.loads(str(mod.attrs[PLANS_ATTR]))
    (name,) = data["plans"]
    if damage == "no kernel":
        data["plans"][name]["kernel"] = None
    elif damage == "of another function":
        other = fused(small("softmax_chain"), cuda_target)
        ((_, plan),) = read_plans(other).items()
        data["plans"][name]["kernel"] = plan.kernel.to_json()
    changed = mod.with_attr(PLANS_ATTR, json.dumps(data))
    if damage == "absent":
        changed = tvm.IRModule(dict(mod.functions.items()))
    KernelTrial._cache.clear()
    got = schedule(changed, cuda_target)
    assert list(got) == list(want)
    for key, func in want.items():
        tvm.ir.assert_structural_equal(got[key], func)


@pytest.mark.parametrize("name", ["gpt2_block", "mamba_block"])
def test_each_distinct_group_is_written_once_in_a_build(name, cuda_target, monkeypatch):
    written: Counter = Counter()
    write = stitched.write_kernel

    def counted(func, plan):
        written[tvm_ffi.StructuralKey(func)] += 1
        return write(func, plan)

    monkeypatch.setattr(stitched, "write_kernel", counted)
    with cuda_target:
        tf.OperatorFusion()(legalize(small(name)))
    assert written
    assert set(written.values()) == {1}


def test_the_rule_works_among_dlights_own(cuda_target):
    mod = fused(small("ln_gelu_res"), cuda_target)
    with cuda_target:
        scheduled = dl.ApplyDefaultSchedule(stitched.Stitched(), dl.gpu.Fallback())(mod)
    (func,) = prim_funcs(scheduled).values()
    assert func.attrs["tirx.is_scheduled"]
    assert inspect(func, "").kernels == 1
    assert inspect(func, "").threads == next(iter(read_plans(mod).values())).threads
