"""A group that is emitted is one kernel launch within the limits; what is not is cut."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tvm
import tvm_ffi
from conftest import make_cuda_target
from support import calls, check_fused, legalize, prim_funcs
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import tvm_fusion as tf
from tvm_fusion.analysis.traffic import measure
from tvm_fusion.codegen import emit_cuda, parse_kernels
from tvm_fusion.planning import read_plans
from tvm_fusion.planning.plan import PLANS_ATTR
from tvm_fusion.policy import Dominator, Group, Partition
from tvm_fusion.policy.reasons import Fused
from tvm_fusion.workloads import WORKLOADS, small


def fuse(mod, target, **options):
    """(module before FuseTIR, scheduled module, trace)"""
    with target, tf.record() as trace:
        grouped = tf.transform.FuseOps(**options)(legalize(mod))
        fused = relax.transform.FuseTIR()(grouped)
        scheduled = tf.transform.Schedule()(fused)
    return grouped, scheduled, trace


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("policy", ["single_chain", "dominator", "stitch"])
@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_every_group_of_the_workloads_is_one_kernel(name, policy, dtype, cuda_target):
    _, mod, trace = fuse(small(name, dtype=dtype), cuda_target, policy=policy)
    functions = prim_funcs(mod)
    for group in trace.groups:
        func = functions[group.name]
        assert func.attrs["op_pattern"] == 8
        assert func.attrs["tvm_fusion.group"] == group.name
        assert measure(func).kernels == 1
        (kernel,) = parse_kernels(emit_cuda(func, cuda_target))
        assert kernel.threads is None or kernel.threads <= 1024
        assert kernel.static_shared_bytes <= 49152


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_plans_say_what_was_scheduled(name, cuda_target):
    _, mod, trace = fuse(small(name), cuda_target)
    plans = read_plans(mod)
    for group in trace.groups:
        plan = plans[group.name]
        assert plan.rule == trace.rules[group.name]
        assert len(plan.ops) == len(group.ops)
        (kernel,) = parse_kernels(emit_cuda(prim_funcs(mod)[group.name], cuda_target))
        assert plan.shared_bytes == kernel.static_shared_bytes


@I.ir_module
class Siblings:
    @R.function
    def main(x: R.Tensor((64, 128), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.sum(a, axis=1)
            c = R.argmax(a, axis=0)
            R.output(b, c)
        return (b, c)


class Everything:
    """A policy that puts all ops into one group, whatever comes of it."""

    name = "everything"

    def partition(self, graph, limits, device, check=None):
        found = Dominator().partition(graph, limits, device)
        return Partition((Group(tuple(graph.topological_order)),), found.decisions)


def test_a_group_that_comes_out_as_two_kernels_is_cut(cuda_target):
    _, mod, trace = fuse(Siblings, cuda_target, policy=Everything())
    assert all(measure(prim_funcs(mod)[g.name]).kernels == 1 for g in trace.groups)
    refused = [d for d in trace.decisions if not d.fused]
    assert refused
    assert all(d.reason.code for d in refused)
    with tvm.target.Target("llvm"):
        on_cpu = tf.transform.FuseOps(policy=Everything())(legalize(Siblings))
    check_fused(Siblings, relax.transform.FuseTIR()(on_cpu))


class Boaster(Everything):
    """A policy that says that all pairs are fused, and forms no group."""

    def partition(self, graph, limits, device, check=None):
        found = super().partition(graph, limits, device, check)
        return Partition((), tuple(replace(d, reason=Fused(2)) for d in found.decisions))


def test_a_policy_that_says_fused_without_a_group_is_refused(cuda_target):
    with pytest.raises(tf.PolicyError, match="put them into one group"):
        fuse(Siblings, cuda_target, policy=Boaster())


@I.ir_module
class RowNorm:
    @R.function
    def main(x: R.Tensor((64, 512), "float32")):
        with R.dataflow():
            a = R.nn.softmax(x)
            b = R.multiply(a, R.const(2.0, "float32"))
            R.output(b)
        return b


def test_a_group_over_the_shared_memory_limit_is_not_emitted(cuda_target):
    _, roomy, _ = fuse(RowNorm, cuda_target)
    (func,) = [f for n, f in prim_funcs(roomy).items() if n.startswith("fused")]
    (kernel,) = parse_kernels(emit_cuda(func, cuda_target))
    enough = tf.Limits(shared_memory_bytes=49152)
    _, mod, trace = fuse(RowNorm, cuda_target, limits=enough)
    assert len(trace.groups) == 1
    _, mod, trace = fuse(RowNorm, cuda_target, limits=tf.Limits(shared_memory_bytes=8))
    assert not trace.groups
    (decision,) = trace.decisions
    assert decision.reason.code == "shared_memory"
    assert decision.reason.figures["bytes_needed"] > decision.reason.figures["bytes_allowed"] == 8
    assert kernel.static_shared_bytes > 8
    assert calls(mod["main"]) == ["softmax", "multiply"]


@I.ir_module
class ManyInputs:
    @R.function
    def main(
        a: R.Tensor((64,), "float32"),
        b: R.Tensor((64,), "float32"),
        c: R.Tensor((64,), "float32"),
        d: R.Tensor((64,), "float32"),
    ):
        with R.dataflow():
            x = R.add(a, b)
            y = R.add(x, c)
            z = R.add(y, d)
            R.output(z)
        return z


@pytest.mark.parametrize(("limit", "groups"), [(5, [3]), (4, [2]), (3, [])])
def test_kernel_arguments_are_counted(cuda_target, limit, groups):
    _, _, trace = fuse(ManyInputs, cuda_target, limits=tf.Limits(max_kernel_args=limit))
    assert [len(g.ops) for g in trace.groups] == groups
    assert all(d.fused or d.reason.code == "kernel_args" for d in trace.decisions)


def test_grids_over_the_limit_are_refused():
    # Upstream issue 20106: gridDim.y above 65535 fails at launch.
    from tvm.script import tirx as T

    from tvm_fusion.schedule import launch_refusal

    @T.prim_func(s_tir=True)
    def tall(x: T.Buffer((70000,), "float32"), y: T.Buffer((70000,), "float32")):
        for i in T.thread_binding(70000, thread="blockIdx.y"):
            with T.sblock("copy"):
                v = T.axis.spatial(70000, i)
                T.reads(x[v])
                T.writes(y[v])
                y[v] = x[v]

    reason = launch_refusal(tall, 1024, 512)
    assert (reason.what, reason.amount, reason.allowed) == ("thread blocks along y", 70000, 65535)
    assert launch_refusal(tall, 1024, 1).what == "kernel arguments"


# -- plans travel in the module ------------------------------------------------------------------


def test_damaged_or_foreign_plans_are_planned_anew(cuda_target):
    grouped, scheduled, _ = fuse(RowNorm, cuda_target)
    fused = relax.transform.FuseTIR()(grouped)
    for text in ("{", "[]", '{"version": 999, "plans": {}}', '{"version": 1, "plans": {"x": 1}}'):
        with cuda_target:
            again = tf.transform.Schedule()(fused.with_attr(PLANS_ATTR, text))
        for name, func in prim_funcs(scheduled).items():
            made = prim_funcs(again)[name]
            assert tvm_ffi.structural_equal(made.body, func.body)
            assert made.attrs["tvm_fusion.group"] == name
            assert made.attrs["op_pattern"] == 8


def test_schedule_keeps_the_limits_that_the_groups_were_made_under(cuda_target):
    tight = tf.Limits(shared_memory_bytes=0)
    grouped, _, _ = fuse(RowNorm, cuda_target, limits=tight)
    with cuda_target, tf.record() as trace:
        tf.transform.Schedule()(relax.transform.FuseTIR()(grouped))
    assert trace.rules["softmax"] != "dlight.GeneralReduction"  # which uses shared memory


def test_each_distinct_group_is_scheduled_once(cuda_target, monkeypatch):
    from tvm_fusion.transform import kernels

    tried = []
    original = kernels.candidates

    def counting(func, *options):
        tried.append(func)
        return original(func, *options)

    monkeypatch.setattr(kernels, "candidates", counting)
    monkeypatch.setattr(kernels.KernelTrial, "_cache", kernels.OrderedDict())
    _, mod, _ = fuse(small("gpt2_block"), cuda_target)
    first = len(tried)
    assert first <= 3 * len(prim_funcs(mod))
    fuse(small("gpt2_block"), cuda_target)
    assert len(tried) == first


# -- the limits ----------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["single_chain", "dominator", "stitch"])
def test_max_fusions_bisects(cuda_target, policy):
    mod = small("gpt2_block")
    sizes = []
    for most in (0, 1, 3, None):
        limits = tf.Limits(max_fusions=most)
        _, _, trace = fuse(mod, cuda_target, policy=policy, limits=limits)
        sizes.append(sum(len(g.ops) - 1 for g in trace.groups))
        assert most is None or sizes[-1] <= most
    assert sizes == sorted(sizes)
    assert sizes[0] == 0 < sizes[-1]


@pytest.mark.parametrize("policy", ["single_chain", "dominator", "stitch"])
def test_max_depth_caps_groups(cuda_target, policy):
    for depth in (1, 2, 3):
        _, _, trace = fuse(
            ManyInputs, cuda_target, policy=policy, limits=tf.Limits(max_depth=depth)
        )
        assert all(len(g.ops) <= depth for g in trace.groups)
        assert bool(trace.groups) == (depth > 1)


@pytest.mark.parametrize(
    "no_fuse", [("y",), ("add",), lambda op: op.name == "y"], ids=["op", "function", "predicate"]
)
def test_no_fuse(cuda_target, no_fuse):
    _, _, trace = fuse(ManyInputs, cuda_target, no_fuse=no_fuse)
    assert not any("y" in group.ops for group in trace.groups)
    assert {d.reason.code for d in trace.decisions} == {"blocked"}
    assert all("no_fuse" in d.reason.message for d in trace.decisions)


@pytest.mark.parametrize("arch", ["sm_70", "sm_75", "sm_90"])
def test_other_architectures(arch):
    _, mod, trace = fuse(small("llama_block"), make_cuda_target(arch))
    assert all(measure(prim_funcs(mod)[g.name]).kernels == 1 for g in trace.groups)


def test_ops_over_extents_of_one_are_scheduled_too(cuda_target):
    """Every PrimFunc gets a schedule, also where TVM's rules that inline are wrong."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((8, 1), "float32"))
    image = relax.Var("image", relax.TensorType((1, 4, 8, 8), "float32"))
    with builder.function("main", [x, image]):
        with builder.dataflow():
            made = [
                relax.op.std(x, 1),
                relax.op.nn.rms_norm(x, relax.const([1.0], "float32"), axes=-1),
                relax.op.nn.avg_pool2d(image, (1, 1)),
            ]
            out = builder.emit_output(relax.Tuple([builder.emit(value) for value in made]))
        builder.emit_func_output(out)
    _, mod, trace = fuse(builder.get(), cuda_target)
    assert all(func.attrs["tirx.is_scheduled"] for func in prim_funcs(mod).values())
    assert set(trace.rules.values()) == {"tvm_fusion.Stitched"}
