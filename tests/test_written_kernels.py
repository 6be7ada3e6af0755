"""What NVIDIA's compiler makes of written kernels: no spills, wide accesses, shared memory."""

from __future__ import annotations

import pytest
import tvm
from conftest import make_cuda_target
from tvm import relax
from written import GROUPS, Written, group_func, module, row_groups, write

import tvm_fusion as tf
from tvm_fusion.analysis.nest_reader import read_nests
from tvm_fusion.codegen import (
    KernelResources,
    compile_resources,
    emit_cuda,
    find_compiler,
    instruction_facts,
)
from tvm_fusion.planning import CannotPlan, KernelPlan, plan_kernel
from tvm_fusion.schedule import dynamic_shared_bytes
from tvm_fusion.schedule.writer.barriers import Barriers
from tvm_fusion.workloads import WORKLOADS, small

KIB = 1024


def compiled(written: dict[str, Written], arch: str) -> dict[str, list[KernelResources]]:
    """What NVIDIA's compiler makes of each group: several kernels where the host chooses."""
    sources = [emit_cuda(one.kernel, make_cuda_target(arch)) for one in written.values()]
    found = compile_resources(sources, arch, find_compiler("nvrtc"))
    return {name: list(one.values()) for name, one in zip(written, found, strict=True)}


def named_groups() -> dict[str, Written]:
    return {name: write(build()) for name, build in GROUPS.items()}


def rows_of(dtype: str, *lengths: int) -> dict[str, Written]:
    return {
        f"{name}_{length}_{dtype}": write(mod)
        for length in lengths
        for name, mod in row_groups(3, length, dtype).items()
    }


#: Kernels that ptxas squeezes into fewer registers than it may take, so that two blocks fit a
#: multiprocessor or for want of registers. Feedback schedules them anew: tests/test_feedback.py.
SQUEEZED = {
    "masked_softmax_12288_float16",
    "masked_softmax_33000_float16",
    "layer_norm_33000_float16",
}


def check_compiled(written: dict[str, Written], arch: str) -> None:
    """No spills; registers within what the launch can have; shared memory as planned, exactly."""
    for name, figures in compiled(written, arch).items():
        one = written[name]
        dynamic = dynamic_shared_bytes(one.kernel)
        for found, plan in zip(figures, one.plan.chain(), strict=True):
            assert found.spill_bytes == found.stack_bytes == 0 or name in SQUEEZED, (name, found)
            threads = -(-plan.threads_per_block // 32) * 32
            assert found.registers * threads <= 65536, (name, found)
            assert found.static_shared_bytes + dynamic == plan.shared_bytes, (name, found)


def test_named_groups_are_compiled_as_planned_for_an_a100():
    check_compiled(named_groups(), "sm_80")


def test_named_groups_are_compiled_as_planned_for_an_h100():
    check_compiled(named_groups(), "sm_90")


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_rows_are_compiled_as_planned(arch):
    """65,536: 16 vectors a thread, and what the first pass loads is not held for the second."""
    check_compiled(rows_of("float32", 768, 12288, 65536, 131072), arch)
    check_compiled(rows_of("float16", 1000, 12288), arch)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_rows_of_all_lengths_are_compiled_as_planned(dtype, arch):
    lengths = [1, 7, 32, 100, 768, 1000, 1024, 4096, 5000, 12288, 33000]
    check_compiled(rows_of(dtype, *lengths), arch)


@pytest.mark.slow
@pytest.mark.parametrize("size", ["small", "full"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_kernels_of_workloads_are_compiled_as_planned(arch, dtype, size):
    check_workloads(sorted(WORKLOADS), arch, dtype, size)


@pytest.mark.parametrize(("arch", "dtype"), [("sm_80", "float32"), ("sm_90", "float16")])
def test_kernels_of_some_workloads_are_compiled_as_planned(arch, dtype):
    check_workloads(["gpt2_block", "llama_block", "mamba_block"], arch, dtype, "full")


def check_workloads(names: list[str], arch: str, dtype: str, size: str) -> None:
    written = {}
    for name in names:
        mod = WORKLOADS[name](dtype=dtype) if size == "full" else small(name, dtype=dtype)
        for kernel, one in planned_kernels(mod, arch).items():
            written[f"{name}.{kernel}"] = one
    assert len(written) >= len(names)
    check_compiled(written, arch)


def planned_kernels(mod: tvm.IRModule, arch: str) -> dict[str, Written]:
    """The kernels of a model that we write; single ops too."""
    with make_cuda_target(arch), tf.record() as trace:
        scheduled = tf.OperatorFusion(feedback="off")(relax.transform.LegalizeOps()(mod))
    return {
        name: Written(None, None, None, scheduled[name], kernel.plan)
        for name, kernel in trace.kernels.items()
        if kernel.plan is not None
    }


def test_every_access_to_global_memory_is_16_bytes_wide():
    names = ["add_layer_norm", "add_rms_norm", "softmax", "bias_gelu", "group_norm_silu"]
    for name in names:
        one = write(GROUPS[name]())
        source = emit_cuda(one.kernel, make_cuda_target())
        code = find_compiler("nvrtc").compile(source, "sm_80").code
        (facts,) = instruction_facts(code).values()
        nests = read_nests(one.func)
        assert set(facts.global_load_bytes) == set(facts.global_store_bytes) == {16}, (name, facts)
        assert facts.global_load_bytes[16] >= len(nests.inputs), name
        assert facts.global_store_bytes[16] >= len(nests.outputs), name
        assert not facts.local_accesses, name


def test_a_new_array_waits_for_readers_of_old_ones():
    """TVM may lay it over one that is not used any more."""
    old, new = "old", "new"
    for end, waits in ((1, True), (3, False)):
        barriers = Barriers({old: end, new: 5})
        assert not barriers.needed(0, set(), {old})
        barriers.passed()
        barriers.touched({old}, set())
        assert barriers.needed(2, set(), {new}) is waits


LIMITS = (96 * KIB, 48 * KIB, 16 * KIB, KIB)


def _shifted(emit, x):
    """Neighbours of a normalized row: all threads read what others wrote."""
    width = int(x.ty.shape[1])
    y = emit(relax.op.nn.softmax(x, -1))
    parts = [emit(relax.op.strided_slice(y, [1], [b], [b + width - 1])) for b in (0, 1)]
    return emit(relax.op.subtract(*parts))


def _both_axes(emit, x):
    columns = emit(relax.op.sum(x, [1], keepdims=True))
    return emit(relax.op.add(emit(relax.op.nn.softmax(x, -1)), columns))


#: Groups that need shared memory, and how much: some of each kind.
SHARING = {
    **{name: GROUPS[name] for name in ("softmax_heads_mask", "group_norm_silu", "scan")},
    **{f"shifted_{n}": lambda n=n: module(_shifted, (4, n)) for n in (900, 9000, 18000)},
    **{f"axes_{n}": lambda n=n: module(_both_axes, (256, n, 64)) for n in (30, 250)},
    "column_sum": GROUPS["column_sum"],
}


def plan_or_none(func: tvm.tirx.PrimFunc, limit: int) -> KernelPlan | None:
    try:
        return plan_kernel(read_nests(func), limit)
    except CannotPlan:
        return None


@pytest.mark.parametrize("limit", LIMITS)
def test_kernels_stay_within_the_shared_memory_that_is_allowed(limit):
    written = {}
    for name, build in SHARING.items():
        if plan_or_none(group_func(build()), limit) is not None:
            written[name] = write(build(), limit)
    assert len(written) >= 6
    if limit > 48 * KIB:
        assert any(dynamic_shared_bytes(w.kernel) > 48 * KIB for w in written.values())
    for name, (found,) in compiled(written, "sm_80").items():
        total = found.static_shared_bytes + dynamic_shared_bytes(written[name].kernel)
        assert total == written[name].plan.shared_bytes <= limit, (name, found)


@pytest.mark.parametrize("name", SHARING)
def test_what_fits_into_less_shared_memory_fits_into_more(name):
    func = group_func(SHARING[name]())
    plans = [plan_or_none(func, limit) for limit in sorted(LIMITS)]
    answers = [plan is not None for plan in plans]
    assert answers == sorted(answers)
    assert answers[-1]
    factors = [plan.recompute_factor for plan in plans if plan is not None]
    assert factors == sorted(factors, reverse=True)  # more memory, less to evaluate again


def test_no_value_has_the_name_of_a_function():
    """One value of ``max`` is loaded for each row, and the largest of the row is looked for."""
    x = relax.Var("x", relax.TensorType([64, 33], "float32"))
    factor = relax.Var("max", relax.TensorType([64, 1], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, factor]):
        with builder.dataflow():
            scaled = builder.emit(relax.op.multiply(x, factor))
            made = builder.emit_output(relax.op.nn.softmax(scaled, -1))
        builder.emit_func_output(made)
    source = emit_cuda(write(builder.get()).kernel, make_cuda_target())
    assert "max_ptr" in source
    find_compiler("nvrtc").compile(source, "sm_80")
