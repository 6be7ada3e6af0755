"""The pipeline and the public surface: how users reach the passes, and what comes out."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
import tvm
from conftest import QUICK_LLVM, make_cuda_target
from support import assert_close, check_fused, legalize, run, run_llvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import tvm_fusion as tf
from tvm_fusion.workloads import WORKLOADS, random_inputs, small

POLICIES = ("single_chain", "dominator", "stitch")


@I.ir_module
class Small:
    @R.function
    def main(x: R.Tensor((64, 128), "float32"), y: R.Tensor((128,), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.add(a, y)
            c = R.nn.softmax(b)
            d = R.multiply(c, x)
            R.output(d)
        return d


def python(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", code],
        capture_output=True, text=True, env={**os.environ, **env}, check=False,
    )  # fmt: skip


def test_the_pipeline_is_there_after_a_bare_import_of_tvm():
    done = python("import tvm; from tvm import relax; relax.get_pipeline('tvm_fusion')")
    assert done.returncode == 0, done.stderr


def test_a_bare_import_of_tvm_imports_nothing_heavy_of_ours():
    done = python("import sys, tvm; print(*sorted(m for m in sys.modules if 'tvm_fusion.' in m))")
    assert done.stdout.strip() == "tvm_fusion._autoload"


def test_silence_in_runtime_only_tvm():
    done = python("import tvm; print(tvm.base._RUNTIME_ONLY)", TVM_USE_RUNTIME_LIB="1")
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "True", "")


@pytest.mark.parametrize("name", ["AnnotateOpKind", "FuseOps", "OperatorFusion", "Schedule"])
def test_passes_are_global_functions_with_names(name):
    made = tvm.get_global_func(f"tvm_fusion.transform.{name}")()
    assert made.info.name == f"tvm_fusion.{name}"


def test_disabled_pass_is_obeyed(cuda_target):
    with cuda_target, tvm.transform.PassContext(disabled_pass=["tvm_fusion.FuseOps"]):
        mod = tf.OperatorFusion()(legalize(Small))
    assert not any(g.name_hint.startswith("fused") for g in mod.functions)


def test_instruments_see_each_pass(cuda_target):
    seen = []

    @tvm.instrument.pass_instrument
    class Recorder:
        def run_before_pass(self, _mod, info):
            seen.append(info.name)

        def run_after_pass(self, mod, info):
            if info.name.startswith("tvm_fusion."):
                assert relax.analysis.check_well_formed(mod)

    with cuda_target, tvm.transform.PassContext(instruments=[Recorder()]):
        tf.OperatorFusion()(legalize(Small))
    names = [n for n in seen if n.startswith("tvm_fusion.")]
    assert names[0] == "tvm_fusion.OperatorFusion"
    assert {"tvm_fusion.AnnotateOpKind", "tvm_fusion.FuseOps", "tvm_fusion.Schedule"} <= {*names}


# -- the examples of the README, as written ------------------------------------------------------


IMMUTABLE = {"testing.immutable_module": True}


@pytest.mark.filterwarnings("ignore:FuseOps runs without a current Target")
def test_one_pass_that_does_it_all(cuda_target):
    seq = tvm.transform.Sequential([relax.transform.LegalizeOps(), tf.OperatorFusion()])
    with tvm.transform.PassContext(config=IMMUTABLE):
        fused = seq(Small)
    assert kernels(tvm.compile(fused, cuda_target))


@pytest.mark.filterwarnings("ignore:FuseOps runs without a current Target")
@pytest.mark.parametrize("under_target", [True, False])
def test_the_parts_as_passes_of_their_own(cuda_target, under_target):
    seq = tvm.transform.Sequential(
        [
            relax.transform.LegalizeOps(),
            tf.transform.AnnotateOpKind(),
            tf.transform.FuseOps(policy="stitch", limits=tf.Limits()),
            relax.transform.FuseTIR(),
            relax.transform.RewriteDataflowReshape(),
            tf.transform.Schedule(),
        ]
    )
    with tvm.transform.PassContext(config=IMMUTABLE):
        if under_target:
            with cuda_target:
                fused = seq(Small)
        else:
            fused = seq(Small)
    assert kernels(tvm.compile(fused, cuda_target))


def test_the_pipeline_by_name_and_with_options(cuda_target):
    # Not under immutable_module: TVM's own SplitHostDevice, which compile runs, breaks it.
    by_name = tvm.compile(Small, cuda_target, relax_pipeline="tvm_fusion")
    with_options = tvm.compile(
        Small,
        cuda_target,
        relax_pipeline=relax.get_pipeline("tvm_fusion", policy="stitch", limits=tf.Limits()),
    )
    assert kernels(by_name) == kernels(with_options)


@pytest.mark.parametrize("kind", ["cuda", "llvm"])
def test_the_pipeline_leaves_its_input_alone(cuda_target, kind):
    target = cuda_target if kind == "cuda" else tvm.target.Target(QUICK_LLVM)
    with target, tvm.transform.PassContext(config=IMMUTABLE):
        relax.get_pipeline("tvm_fusion")(Small)


def test_without_a_target_there_is_one_warning(recwarn):
    tf.OperatorFusion()(legalize(Small))
    said = [str(w.message) for w in recwarn if "without a current Target" in str(w.message)]
    assert len(said) == 1


# -- what comes out ------------------------------------------------------------------------------


def kernels(executable) -> list[str]:
    """The CUDA text of every kernel that the program launches, sorted; it launches each it calls.

    TVM's own pipeline also compiles reshapes that it made views of; nothing launches those.
    """
    bodies = re.split(r'(?=extern "C" __global__)', tf.codegen.cuda_source(executable))[1:]
    text_of = {}
    for body in bodies:
        name = re.search(r"(\w+?)_kernel(?:_\d+)?\(", body)[1]
        if "{" in body:
            text_of.setdefault(name, []).append(body.strip())
    program = executable.as_text()
    called = set(re.findall(r"call\s+([\w.]+)\s", program)) - {"main"}
    called = {name for name in called if "." not in name and not name.startswith("shape_func")}
    assert called <= set(text_of), f"no kernel: {called - set(text_of)}"
    return sorted(text for name in called for text in text_of[name])


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_pass_and_then_plain_compile_gives_the_kernels_of_the_pipeline(name, cuda_target):
    mod = small(name)
    with cuda_target:
        fused = tvm.transform.Sequential([relax.transform.LegalizeOps(), tf.OperatorFusion()])(mod)
    plain = tvm.compile(fused, cuda_target)
    whole = tvm.compile(mod, cuda_target, relax_pipeline="tvm_fusion")
    assert kernels(plain) == kernels(whole)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_workloads_on_llvm(name, policy, dtype):
    mod = small(name, dtype=dtype)
    args = random_inputs(mod, seed=0)
    pipeline = relax.get_pipeline("tvm_fusion", policy=policy)
    assert_close(run_llvm(mod, args, pipeline), run_llvm(mod, args))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_the_groups_made_for_cuda_compute_the_same_on_llvm(name, policy, cuda_target):
    """The groups as the GPU gets them, their loops run by the CPU."""
    mod = small(name)
    dispatch = [relax.backend.DispatchSortScan()]
    with tvm.target.Target(QUICK_LLVM):
        legal = tvm.transform.Sequential([*dispatch, relax.transform.LegalizeOps()])(mod)
    with cuda_target:
        grouped = tf.transform.FuseOps(policy=policy)(legal)
    args = random_inputs(mod, seed=0)
    assert_close(run_llvm(relax.transform.FuseTIR()(grouped), args), run_llvm(mod, args))


@pytest.mark.filterwarnings("ignore:FuseOps runs without a current Target")
@pytest.mark.parametrize("first", [None, QUICK_LLVM], ids=["no target", "llvm"])
def test_groups_made_elsewhere_are_scheduled_by_our_pipeline(first, cuda_target):
    seq = tvm.transform.Sequential([relax.transform.LegalizeOps(), tf.OperatorFusion()])
    if first is None:
        fused = seq(Small)
    else:
        with tvm.target.Target(first):
            fused = seq(Small)
    exe = tvm.compile(fused, cuda_target, relax_pipeline="tvm_fusion")
    assert any("fused_tir_exp_add" in kernel for kernel in kernels(exe))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_workloads_on_a_gpu(name, policy, dtype):
    mod = small(name, dtype=dtype)
    args = random_inputs(mod, seed=0)
    target = tvm.target.Target.from_device(tvm.cuda(0)).with_host("llvm")
    exe = tvm.compile(mod, target, relax_pipeline=relax.get_pipeline("tvm_fusion", policy=policy))
    assert_close(run(exe, args, tvm.cuda(0)), run_llvm(mod, args))


@pytest.mark.parametrize("name", ["gpt2_block", "llama_block", "bert_layer", "softmax_chain"])
def test_symbolic_workloads(name):
    mod = small(name, batch="b", seq="s")
    with tvm.target.Target(QUICK_LLVM):
        fused = tvm.transform.Sequential([relax.transform.LegalizeOps(), tf.OperatorFusion()])(mod)
    for b, s in ((1, 4), (3, 7)):
        check_fused(mod, fused, assume={"b": b, "s": s})


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_symbolic_workloads_compile_for_cuda(name, cuda_target):
    exe = tvm.compile(small(name, batch="b"), cuda_target, relax_pipeline="tvm_fusion")
    assert kernels(exe)


def test_stock_fuse_ops_before_ours_breaks_nothing(cuda_target):
    with cuda_target:
        stock = tvm.transform.Sequential(
            [
                relax.transform.LegalizeOps(),
                relax.transform.AnnotateTIROpPattern(),
                relax.transform.FuseOps(),
                relax.transform.FuseTIR(),
            ]
        )(Small)
        fused = tf.OperatorFusion()(stock)
    assert kernels(tvm.compile(fused, cuda_target))


def test_ours_twice_changes_nothing(cuda_target):
    with cuda_target:
        once = tf.OperatorFusion()(legalize(Small))
        twice = tf.OperatorFusion()(once)
    assert once.script() == twice.script()


def test_other_targets_keep_their_own_scheduling():
    target = tvm.target.Target({"kind": "opencl"}, host="llvm")
    with target, tf.record() as trace:
        mod = relax.get_pipeline("tvm_fusion")(Small)
    assert any(g.name_hint.startswith("fused") for g in mod.functions)
    assert not trace.rules
    functions = [f for f in mod.functions.values() if not isinstance(f, relax.Function)]
    assert all(f.attrs["tirx.is_scheduled"] for f in functions)


@pytest.mark.filterwarnings("ignore:FuseOps runs without a current Target")
@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_without_a_target_groups_are_one_kernel_of_stock_rules(name, cuda_target):
    with tf.record() as trace:
        fused = tvm.transform.Sequential([relax.transform.LegalizeOps(), tf.OperatorFusion()])(
            small(name)
        )
    launched = kernels(tvm.compile(fused, cuda_target))
    for group in {g.name for g in trace.groups}:
        assert sum(f" {group}_kernel(" in kernel for kernel in launched) == 1


def test_the_pipeline_without_a_target_says_what_to_do():
    with pytest.raises(tf.TargetError, match="needs a target: use"):
        relax.get_pipeline("tvm_fusion")(Small)


def test_a_bare_cuda_target_works_with_one_warning():
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_80"}, host="llvm")
    with pytest.warns(UserWarning, match="does not say max_shared_memory_per_block") as said:
        tvm.compile(Small, target, relax_pipeline="tvm_fusion")
    assert len([w for w in said if "does not say" in str(w.message)]) == 1


@pytest.mark.parametrize("arch", ["sm_70", "sm_90"])
def test_float16_matmuls_do_not_crash(arch):
    mod = small("gpt2_block", dtype="float16", channels=128, heads=2, seq=128)
    assert kernels(tvm.compile(mod, make_cuda_target(arch), relax_pipeline="tvm_fusion"))
