"""The compiler's figures decide: groups that spill or exceed limits are rescheduled or split."""

from __future__ import annotations

import warnings

import pytest
import tvm
from conftest import QUICK_LLVM, make_cuda_target
from support import assert_close, flatten, run
from tvm import relax
from tvm.relax import op
from written import module, row_groups

import tvm_fusion as tf
from tvm_fusion import codegen, emulator
from tvm_fusion.analysis.traffic import total
from tvm_fusion.cache import cache_directory
from tvm_fusion.codegen import KernelFigures, compilers
from tvm_fusion.codegen.occupancy import _calculator
from tvm_fusion.planning import read_plans, read_settings
from tvm_fusion.transform import feedback
from tvm_fusion.transform.kernels import KernelTrial
from tvm_fusion.transform.split import cheapest_cuts
from tvm_fusion.workloads import WORKLOADS, random_inputs, small


@pytest.fixture(autouse=True)
def any_compiler(monkeypatch):
    """The suite asks none unless a test wants it."""
    monkeypatch.delenv("TVM_FUSION_CUDA_COMPILER")


def fuse(mod: tvm.IRModule, arch: str = "sm_80", **options) -> tuple[tf.Trace, tvm.IRModule]:
    with make_cuda_target(arch), tf.record() as trace:
        made = tf.OperatorFusion(**options)(relax.transform.LegalizeOps()(mod))
    return trace, made


def spills(mod: tvm.IRModule) -> dict[str, int]:
    """Bytes that each kernel of a scheduled module spills."""
    source = codegen.cuda_source(tvm.compile(mod, make_cuda_target()))
    (found,) = codegen.compile_resources([source], "sm_80", codegen.find_compiler())
    return {name: figures.spill_bytes for name, figures in found.items()}


def check_on_emulator(mod: tvm.IRModule, **options) -> None:
    """Fused, on the emulator in check mode, equals unfused on the CPU.

    Tolerance: that of ``assert_close`` for each type; sums are taken in another order.
    """
    arrays = random_inputs(mod, seed=5)
    with tvm.transform.PassContext(disabled_pass=["FuseOps"]):
        want = run(tvm.compile(mod, tvm.target.Target(QUICK_LLVM)), arrays)
    pipeline = relax.get_pipeline("tvm_fusion", **options)
    executable = tvm.compile(mod, make_cuda_target(), relax_pipeline=pipeline)
    with emulator.configure(check=True):
        machine = relax.VirtualMachine(executable, tvm.cuda(0), memory_cfg="naive")
        result = machine["main"](*[tvm.runtime.tensor(a, tvm.cuda(0)) for a in arrays])
    assert_close(flatten(result), want, None)


def many_values(count: int) -> tvm.IRModule:
    """Powers of x, added up from the last to the first: all of them live at once, as float64."""

    def build(emit, x):
        powers = [x]
        for _ in range(count - 1):
            powers.append(emit(op.multiply(powers[-1], x)))
        result = powers[-1]
        for power in reversed(powers[:-1]):
            result = emit(op.add(result, power))
        return result

    return module(build, (8, 64), dtype="float64")


# -- spills -------------------------------------------------------------------------------------


def test_a_group_of_too_many_values_is_split_until_it_does_not_spill(emulated):
    mod = many_values(140)
    off, made = fuse(mod, feedback="off")
    assert len(off.groups) == 1
    assert not off.feedback
    assert max(spills(made).values()) > 0
    trace, made = fuse(mod)
    (step,) = trace.feedback
    assert (step.problem, step.action) == ("spills", "split")
    assert step.before.spill_bytes > 0
    assert [figures.spill_bytes for figures in step.after] == [0, 0]
    assert len(trace.groups) == 2
    assert sum(len(group.ops) for group in trace.groups) == len(off.groups[0].ops)
    assert max(spills(made).values()) == 0
    apart = [decision for decision in trace.decisions if not decision.fused]
    assert {decision.reason.code for decision in apart} == {"spills"}
    assert apart[0].reason.figures["spill_bytes"] == step.before.spill_bytes
    check_on_emulator(mod)


def test_a_group_with_few_values_less_is_left_alone():
    trace, made = fuse(many_values(100))
    assert not trace.feedback
    assert len(trace.groups) == 1
    assert max(spills(made).values()) == 0


def test_a_row_that_spills_is_scheduled_otherwise(emulated):
    mod = row_groups(3, 12288, "float16")["masked_softmax"]
    off, unasked = fuse(mod, feedback="off")
    assert max(spills(unasked).values()) > 0
    trace, made = fuse(mod)
    (step,) = trace.feedback
    assert (step.problem, step.action) == ("spills", "rescheduled")
    assert step.before.spill_bytes > 0
    ((name, kernel),) = trace.kernels.items()
    assert step.after == (kernel.figures,)
    assert kernel.figures.spill_bytes == max(spills(made).values()) == 0
    assert kernel.plan == read_plans(made)[name].kernel
    assert kernel.plan != off.kernels[name].plan
    assert kernel.plan.bytes_read == off.kernels[name].plan.bytes_read
    settings = read_settings(made)
    assert (settings.feedback, settings.compiler) == ("auto", codegen.find_compiler().name)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("length", [12288, 33000])
def test_no_row_spills(length, arch):
    for name, mod in row_groups(3, length, "float16").items():
        trace, _ = fuse(mod, arch)
        (kernel,) = trace.kernels.values()
        assert kernel.figures.spill_bytes == 0, name


def test_a_single_op_is_scheduled_otherwise_too():
    mod = module(lambda emit, x: emit(op.nn.softmax(x, -1)), (3, 33000), dtype="float16")
    for arch in ("sm_80", "sm_90"):
        trace, _ = fuse(mod, arch)
        assert not trace.groups
        (kernel,) = trace.kernels.values()
        assert kernel.figures.spill_bytes == 0


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_no_kernel_of_a_workload_spills(name, dtype, arch):
    trace, _ = fuse(WORKLOADS[name](dtype=dtype), arch)
    for kernel, record in trace.kernels.items():
        assert record.figures.spill_bytes == 0, (kernel, record.figures)


# -- limits -------------------------------------------------------------------------------------


def check_occupancy(mod: tvm.IRModule, wanted: float) -> None:
    """Kernels that we write meet it, or a step says why they cannot."""
    free, _ = fuse(mod)
    low = [k for k in free.kernels.values() if k.plan and k.figures.occupancy < wanted]
    assert low, "no kernel is below the limit: the test needs another workload"
    trace, _ = fuse(mod, limits=tf.Limits(min_occupancy=wanted))
    assert {step.problem for step in trace.feedback} == {"occupancy"}
    assert {"split", "rescheduled"} & {step.action for step in trace.feedback}
    assert trace.kernels != free.kernels
    kept = [step.before for step in trace.feedback if step.action == "kept"]
    for name, kernel in trace.kernels.items():
        if kernel.plan is not None:
            assert kernel.figures.occupancy >= wanted or kernel.figures in kept, name


def test_min_occupancy_changes_what_is_emitted_and_is_met():
    check_occupancy(WORKLOADS["mamba_block"](), 0.5)


def test_what_min_occupancy_makes_of_a_network_is_right(emulated):
    mod = small("mamba_block")
    check_occupancy(mod, 0.75)
    check_on_emulator(mod, limits=tf.Limits(min_occupancy=0.75))


def test_where_no_schedule_meets_it_the_step_says_so():
    """The registers are those of the matrix product, with what follows or without."""
    limits = tf.Limits(min_occupancy=0.9)
    mod = module(lambda emit, x, w: emit(op.nn.relu(emit(op.matmul(x, w)))), (64, 64), (64, 64))
    trace, _ = fuse(mod, limits=limits)
    (step,) = trace.feedback
    assert (step.problem, step.action, step.after) == ("occupancy", "kept", ())
    assert "for lack of registers, at least 90% are wanted" in step.message
    assert len(trace.groups) == 1


def test_registers_per_thread(emulated):
    mod = small("llama_block")
    free, _ = fuse(mod)
    most = max(k.figures.registers for k in free.kernels.values() if k.plan is not None)
    limits = tf.Limits(registers_per_thread=most - 8)
    trace, _ = fuse(mod, limits=limits)
    assert {step.problem for step in trace.feedback} == {"registers"}
    for name, kernel in trace.kernels.items():
        if kernel.plan is not None:
            assert kernel.figures.registers <= most - 8, name
    check_on_emulator(mod, limits=limits)


def test_no_time_no_tries():
    mod = row_groups(3, 12288, "float16")["masked_softmax"]
    trace, _ = fuse(mod, limits=tf.Limits(compile_seconds=1e-9))
    tried = [step for step in trace.feedback if step.action != "kept"]
    assert len(tried) <= 1  # the time is looked at before each try but the first


def test_each_distinct_group_is_compiled_once(monkeypatch, tmp_path):
    compiled: list[str] = []
    original = compilers.Nvrtc.compile

    def counted(self, source, arch):
        compiled.append(source)
        return original(self, source, arch)

    monkeypatch.setattr(compilers.Nvrtc, "compile", counted)
    monkeypatch.setenv("TVM_FUSION_CACHE", str(tmp_path))

    def twice(emit, x, y):
        return [emit(op.nn.relu(emit(op.add(v, v)))) for v in (x, y)]

    fuse(module(twice, (64, 100), (64, 100)))
    assert len(compiled) == len(set(compiled)) >= 1


def test_a_second_build_of_a_model_compiles_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("TVM_FUSION_CACHE", str(tmp_path))
    KernelTrial._cache.clear()  # other tests' kernels have other names in them
    first, _ = fuse(small("gpt2_block"))
    KernelTrial._cache.clear()
    monkeypatch.setattr(compilers.Nvrtc, "compile", lambda *_: pytest.fail("compiled again"))
    second, _ = fuse(small("gpt2_block"))
    assert second.kernels == first.kernels
    assert all(kernel.figures.is_compiled for kernel in second.kernels.values())


def test_results_are_the_same_each_time():
    limits = tf.Limits(registers_per_thread=24)
    one, two = (fuse(small("gpt2_block"), limits=limits)[1] for _ in "12")
    assert one.script() == two.script()
    tvm.ir.assert_structural_equal(one, two)


# -- without a compiler -------------------------------------------------------------------------


def figures_are_estimates(trace: tf.Trace) -> bool:
    found = [kernel.figures for kernel in trace.kernels.values()]
    assert found
    return all(isinstance(f, KernelFigures) and not f.is_compiled for f in found)


@pytest.mark.parametrize("mode", ["auto", "compiler"])
def test_without_a_compiler_there_are_estimates_and_one_warning(mode, monkeypatch):
    monkeypatch.setattr(compilers, "nvrtc", lambda: None)
    monkeypatch.setattr(compilers, "nvcc", lambda: None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trace, _ = fuse(small("gpt2_block"), feedback=mode)
    (warning,) = caught
    assert "estimates: no CUDA compiler is installed: pip install 'tvm-fusion[cuda]'" in str(
        warning.message
    )
    assert figures_are_estimates(trace)
    planned = [k for k in trace.kernels.values() if k.plan is not None]
    assert all(k.figures.registers == k.plan.registers for k in planned)
    assert all(k.figures.occupancy is not None for k in planned)


def test_an_architecture_that_the_compiler_does_not_know_gets_estimates():
    with pytest.warns(UserWarning, match=r"nvrtc 13.* makes no code for sm_70"):
        trace, _ = fuse(small("ln_gelu_res"), arch="sm_70")
    assert figures_are_estimates(trace)


def test_a_bare_target_gets_estimates_and_one_warning():
    mod = relax.transform.LegalizeOps()(small("ln_gelu_res"))
    bare = tvm.target.Target({"kind": "cuda", "arch": "sm_50"}, host="llvm")  # as without a GPU
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with bare, tf.record() as trace:
            tf.OperatorFusion()(mod)
    assert ["does not say" in str(warning.message) for warning in caught] == [True]
    assert figures_are_estimates(trace)


def test_who_asks_for_no_compiler_is_not_warned(monkeypatch):
    monkeypatch.setenv("TVM_FUSION_CUDA_COMPILER", "none")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trace, _ = fuse(small("ln_gelu_res"))
    assert figures_are_estimates(trace)


def test_off_asks_nobody(monkeypatch):
    monkeypatch.setattr(compilers.Nvrtc, "compile", lambda *_: pytest.fail("compiled"))
    trace, made = fuse(small("ln_gelu_res"), feedback="off")
    assert [kernel.figures for kernel in trace.kernels.values()] == [None]
    assert read_settings(made).feedback == "off"


# -- cuts ---------------------------------------------------------------------------------------


def test_cuts_come_in_the_order_of_the_bytes_they_cost():
    """x (wide) -> a -> b -> sum -> c -> d: behind the sum a cut costs next to nothing."""

    def build(emit, x):
        b = emit(op.exp(emit(op.nn.relu(x))))
        total_of_row = emit(op.sum(b, [1], keepdims=True))
        return emit(op.tanh(emit(op.sqrt(total_of_row))))

    trace, _ = fuse(module(build, (512, 256)))
    graph = trace.blocks[0].graph
    ops = [graph.index[name] for name in trace.groups[0].ops]
    cuts = cheapest_cuts(graph, ops)
    assert len(cuts) == len(ops) - 1
    sizes = [tuple(len(part) for part in parts) for parts in cuts]
    assert sizes == [(3, 2), (4, 1), (2, 3), (1, 4)]
    assert all(sorted(op for part in parts for op in part) == sorted(ops) for parts in cuts)


def test_parts_of_a_cut_hold_together_through_inputs():
    def build(emit, x):
        return [emit(op.exp(emit(f(x)))) for f in (op.nn.relu, op.abs)]

    trace, _ = fuse(module(build, (512, 256)))
    graph = trace.blocks[0].graph
    ops = [graph.index[name] for name in trace.groups[0].ops]
    assert len(ops) == 4
    for parts in cheapest_cuts(graph, ops):
        assert all(len(part) >= 1 for part in parts)
    reads_x = [p for parts in cheapest_cuts(graph, ops) for p in parts if len(p) == 3]
    assert reads_x


def test_feedback_moves_no_more_bytes_than_it_says():
    mod = many_values(140)
    _, together = fuse(mod, feedback="off")
    _, apart = fuse(mod)
    assert total(apart).bytes > total(together).bytes


def test_what_leaves_the_block_is_not_written_once_more_for_a_cut():
    """Behind tanh, which is a result, a cut costs one read; elsewhere a write and a read."""

    def build(emit, x):
        first = emit(op.tanh(emit(op.exp(x))))
        last = emit(op.cos(emit(op.sigmoid(emit(op.sin(first))))))
        return [first, last]

    trace, _ = fuse(module(build, (512, 256)))
    graph = trace.blocks[0].graph
    ops = [graph.index[name] for name in trace.groups[0].ops]
    assert [len(part) for part in cheapest_cuts(graph, ops)[0]] == [2, 3]


# -- broken tools -------------------------------------------------------------------------------


def test_a_compiler_that_does_not_work_ends_no_build(monkeypatch, tmp_path):
    def broken():
        raise OSError("libnvrtc.so.13: file too short")

    monkeypatch.setattr(compilers, "nvrtc", broken)
    monkeypatch.setattr(compilers, "nvcc", lambda: None)
    with pytest.warns(UserWarning, match=r"nvrtc does not work: .*file too short"):
        trace, _ = fuse(small("ln_gelu_res"))
    assert figures_are_estimates(trace)


def test_the_other_compiler_is_asked_where_one_does_not_work(monkeypatch):
    def broken():
        raise OSError("no such library")

    monkeypatch.setattr(compilers, "nvrtc", broken)
    trace, _ = fuse(small("ln_gelu_res"))
    (kernel,) = trace.kernels.values()
    assert kernel.figures.compiler.startswith("nvcc")


def test_flags_that_cannot_be_read_end_no_build(monkeypatch):
    monkeypatch.setenv("TVM_CUDA_PTXAS_EXTRA_OPTS", '"-O1')
    with pytest.warns(UserWarning, match="No closing quotation"):
        trace, _ = fuse(small("ln_gelu_res"))
    assert figures_are_estimates(trace)


def test_no_home_and_no_cache_end_no_build(monkeypatch):
    monkeypatch.delenv("TVM_FUSION_CACHE", raising=False)
    monkeypatch.setattr("pathlib.Path.home", no_home)
    trace, _ = fuse(small("ln_gelu_res"))
    (kernel,) = trace.kernels.values()
    assert kernel.figures.is_compiled
    with pytest.raises(OSError, match="Set TVM_FUSION_CACHE"):
        cache_directory()


def no_home() -> None:
    raise RuntimeError("Could not determine home directory.")


def test_an_occupancy_that_is_not_known_is_said(monkeypatch):
    monkeypatch.setattr(feedback, "occupancy", lambda *_: None)
    with pytest.warns(UserWarning, match="min_occupancy is not checked"):
        fuse(small("ln_gelu_res"), limits=tf.Limits(min_occupancy=0.5))


def test_a_damaged_calculator_is_made_anew(monkeypatch, tmp_path):
    whole, damaged = tmp_path / "whole", tmp_path / "damaged"
    monkeypatch.setenv("TVM_FUSION_CACHE", str(whole))
    _calculator.__wrapped__()
    (library,) = whole.glob("occupancy-*.so")
    damaged.mkdir()
    (damaged / library.name).write_text("junk")
    monkeypatch.setenv("TVM_FUSION_CACHE", str(damaged))
    assert _calculator.__wrapped__() is not None
    assert (damaged / library.name).stat().st_size > 1000


def test_time_for_splits_is_bounded(monkeypatch):
    """A split tries several cuts; the time that each takes counts."""
    monkeypatch.setattr(feedback.Feedback, "_rescheduled", lambda *_: None)
    looked: list[object] = []
    original = feedback.Feedback.verdict
    monkeypatch.setattr(
        feedback.Feedback, "verdict", lambda self, a: looked.append(a) or original(self, a)
    )
    limits = tf.Limits(registers_per_thread=16, compile_seconds=1e-6)
    trace, _ = fuse(many_values(20), limits=limits)
    assert len(looked) <= 6
    assert trace.feedback
