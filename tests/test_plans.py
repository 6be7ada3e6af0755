"""Plans travel from FuseOps to Schedule, and each distinct group is scheduled once in a build."""

from __future__ import annotations

import json
from collections import Counter

import pytest
import tvm
import tvm_ffi
from support import legalize, prim_funcs
from tvm import relax, tirx
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


def scheduled(shapes, build, target):
    """(rules of all functions, scheduled module) of a function of some tensors."""
    builder = relax.BlockBuilder()
    symbols: dict = {}
    params = [
        relax.Var(f"x{i}", relax.TensorType([extent(e, symbols) for e in shape], "float32"))
        for i, shape in enumerate(shapes)
    ]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(build(builder.emit, *params))
        builder.emit_func_output(out)
    with target, tf.record() as trace:
        mod = tf.OperatorFusion()(legalize(builder.get()))
    return trace.rules, mod


def extent(value, symbols):
    return symbols.setdefault(value, tirx.Var(value, "int64")) if isinstance(value, str) else value


def test_a_row_of_symbolic_length_is_planned_in_the_pipeline_too(cuda_target):
    rules, mod = scheduled(
        [("b", "n")],
        lambda emit, x: relax.op.nn.softmax(emit(relax.op.multiply(x, x))),
        cuda_target,
    )
    assert set(rules.values()) == {"tvm_fusion.Stitched"}
    (func,) = prim_funcs(mod).values()
    assert inspect(func, "").threads == 512


@pytest.mark.parametrize(
    "build",
    [
        lambda emit, t: relax.op.add(t, emit(relax.op.permute_dims(t))),
        lambda emit, t: relax.op.add(t, emit(relax.op.flip(t, 0))),
    ],
    ids=["transposed", "reversed"],
)
def test_no_thread_block_works_on_a_large_tensor_alone(build, cuda_target):
    rules, mod = scheduled(
        [(2048, 2048)], lambda emit, x: build(emit, emit(relax.op.exp(x))), cuda_target
    )
    for func in prim_funcs(mod).values():
        grid = max(
            int(loop.extent)
            for loop in thread_loops(func)
            if loop.thread_binding.thread_tag == "blockIdx.x"
        )
        assert grid >= 256, rules


def thread_loops(func):
    found: list = []
    tvm_ffi.structural_walk(func.body, (tirx.For, found.append))
    return [loop for loop in found if loop.kind == tirx.ForKind.THREAD_BINDING]


@pytest.mark.parametrize("shape", [(0, 64), (16, 0)])
def test_tensors_without_elements(shape, cuda_target):
    _, mod = scheduled(
        [shape], lambda emit, x: relax.op.multiply(emit(relax.op.exp(x)), x), cuda_target
    )
    assert prim_funcs(mod)


def test_results_that_are_evaluated_again_are_evaluated_once_in_each_place(cuda_target):
    """Every one of a chain of outputs over rows of any length: no doubling from one to the next."""

    def chain(emit, x):
        made = [x]
        for _ in range(24):
            made.append(emit(relax.op.multiply(made[-1], made[-1])))
        return relax.Tuple(made[1:])

    rules, _ = scheduled([(64, "n")], chain, cuda_target)
    assert rules
