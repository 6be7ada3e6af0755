"""Bad input ends in an error, or a warning, that names the thing and the remedy."""

from __future__ import annotations

import warnings

import pytest
import tvm
from support import calls, check_fused, legalize
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import tvm_fusion as tf
from tvm_fusion.policy import Group, Partition
from tvm_fusion.transform import kernels


@I.ir_module
class Chain:
    @R.function
    def main(x: R.Tensor((64,), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.add(a, x)
            R.output(b)
        return b


def test_unknown_policy():
    with pytest.raises(
        tf.PolicyError,
        match=r"unknown policy 'stich': choose one of dominator, single_chain",
    ):
        tf.OperatorFusion(policy="stich")


def test_feedback_that_is_not_there():
    with pytest.raises(tf.LimitsError, match="'always': use one of auto, compiler, off"):
        tf.OperatorFusion(feedback="always")
    limits = tf.Limits(min_occupancy=0.5)
    with pytest.raises(tf.LimitsError, match=r"min_occupancy is checked .* needs feedback="):
        tf.OperatorFusion(limits=limits, feedback="off")


def test_a_call_of_a_function_that_is_not_there():
    legal = legalize(Chain)
    without = {g: f for g, f in legal.functions.items() if g.name_hint != "add"}
    with (
        tvm.target.Target("llvm"),
        pytest.raises(tf.TVMFusionError, match="b calls add, which is no PrimFunc of the module"),
    ):
        tf.transform.FuseOps()(tvm.IRModule(without))


def test_errors_keep_their_class_through_the_pass_manager(cuda_target):
    legal = legalize(Chain)
    wrong = {g: f.with_attr("tvm_fusion.op_kind", "NONSENSE") if g.name_hint == "add" else f
             for g, f in legal.functions.items()}  # fmt: skip
    with cuda_target, pytest.raises(tf.TVMFusionError, match="add has tvm_fusion"):
        tf.OperatorFusion()(tvm.IRModule(wrong))


def test_a_module_that_was_not_legalized(cuda_target):
    with (
        cuda_target,
        pytest.warns(UserWarning, match=r"only operators \(relax.add, relax.exp\): run relax"),
    ):
        fused = tf.transform.FuseOps()(Chain)
    assert calls(fused["main"]) == []


def test_a_policy_whose_groups_overlap(cuda_target):
    class Overlapping:
        name = "overlapping"

        def partition(self, graph, limits, device, check=None):
            return Partition((Group((0, 1)), Group((1,))), ())

    with cuda_target, pytest.raises(tf.PolicyError, match="put b into two groups"):
        tf.transform.FuseOps(policy=Overlapping())(legalize(Chain))


def test_a_group_that_tvm_cannot_schedule_is_emitted_unfused(cuda_target, monkeypatch):
    monkeypatch.setattr(kernels, "candidates", lambda *_: iter(()))
    monkeypatch.setattr(kernels.KernelTrial, "_cache", kernels.OrderedDict())
    with (
        cuda_target,
        tf.record() as trace,
        pytest.warns(
            UserWarning, match=r"emitted unfused \(tir_exp, add\): no schedule rule"
        ) as said,
    ):
        fused = tf.transform.FuseOps()(legalize(Chain))
    assert len(said) == 1
    assert calls(fused["main"]) == ["tir_exp", "add"]
    (decision,) = trace.decisions
    assert decision.reason.code == "schedule_failed"


def test_a_group_whose_cuda_source_cannot_be_made_is_emitted_unfused(cuda_target, monkeypatch):
    def fail(func, target):
        raise RuntimeError("Cannot convert type float32x16 to CUDA type")

    monkeypatch.setattr(kernels, "emit_cuda", fail)
    monkeypatch.setattr(kernels.KernelTrial, "_cache", kernels.OrderedDict())
    with cuda_target, tf.record() as trace, pytest.warns(UserWarning, match="float32x16"):
        fused = tf.transform.FuseOps()(legalize(Chain))
    assert calls(fused["main"]) == ["tir_exp", "add"]
    assert trace.decisions[0].reason.code == "schedule_failed"
    check_fused(Chain, fused)


def test_checks_and_instruments_of_the_user_do_not_disturb_the_trial(cuda_target, monkeypatch):
    monkeypatch.setattr(kernels.KernelTrial, "_cache", kernels.OrderedDict())
    seen = []

    @tvm.instrument.pass_instrument
    class Recorder:
        def run_before_pass(self, _mod, info):
            seen.append(str(info.name))

    context = tvm.transform.PassContext(
        config={"testing.immutable_module": True}, instruments=[Recorder()]
    )
    with cuda_target, context, warnings.catch_warnings():
        warnings.simplefilter("error")
        fused = tvm.transform.Sequential([tf.transform.FuseOps(), relax.transform.FuseTIR()])(
            legalize(Chain)
        )
    assert calls(fused["main"]) == ["fused_tir_exp_add"]
    assert "tirx.SplitHostDevice" not in seen
