"""The planner's estimates against the compiler's figures, over the workloads."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from conftest import make_cuda_target
from tvm import relax
from written import GROUPS, row_groups, write

import tvm_fusion as tf
from tvm_fusion.codegen import KernelResources, compile_resources, emit_cuda, find_compiler
from tvm_fusion.planning import KernelPlan
from tvm_fusion.workloads import WORKLOADS, small

Pair = tuple[str, KernelPlan, KernelResources]


def pairs(plans: dict[str, KernelPlan], sources: dict[str, str], arch: str) -> list[Pair]:
    """Each kernel's plan and what the compiler says."""
    answers = compile_resources(list(sources.values()), arch, find_compiler("nvrtc"))
    return [
        (name, plan, figures)
        for (name, whole), answer in zip(plans.items(), answers, strict=True)
        for plan, figures in zip(whole.chain(), answer.values(), strict=True)
    ]


@cache
def of_workloads(size: str, arch: str) -> list[Pair]:
    plans, sources = {}, {}
    target = make_cuda_target(arch)
    for name in sorted(WORKLOADS):
        for dtype in ("float32", "float16"):
            mod = WORKLOADS[name](dtype=dtype) if size == "full" else small(name, dtype=dtype)
            with target, tf.record() as trace:
                made = tf.OperatorFusion(feedback="off")(relax.transform.LegalizeOps()(mod))
            for kernel, record in trace.kernels.items():
                if record.plan is not None:
                    key = f"{name}, {dtype}: {kernel}"
                    plans[key] = record.plan
                    sources[key] = emit_cuda(made[kernel], target)
    return pairs(plans, sources, arch)


@cache
def of_groups(arch: str) -> list[Pair]:
    written = {name: write(build()) for name, build in GROUPS.items()}
    for length, dtype in ((100, "float16"), (4096, "float32"), (12288, "float16")):
        for name, mod in row_groups(3, length, dtype).items():
            written[f"{name}_{length}_{dtype}"] = write(mod)
    target = make_cuda_target(arch)
    plans = {name: one.plan for name, one in written.items()}
    return pairs(plans, {n: emit_cuda(one.kernel, target) for n, one in written.items()}, arch)


def ranks(values: list[int]) -> np.ndarray:
    """The rank of each value; equal ones share the mean of theirs."""
    array = np.array(values)
    return np.array([((array < v).sum() + (array <= v).sum() - 1) / 2 for v in values])


def rank_correlation(found: list[Pair]) -> float:
    """Spearman's coefficient of estimated and compiled registers."""
    estimated = ranks([plan.registers for _, plan, _ in found])
    compiled = ranks([figures.registers for _, _, figures in found])
    return float(np.corrcoef(estimated, compiled)[0, 1])


SIZES = ["small", pytest.param("full", marks=pytest.mark.slow)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("arch", ["sm_80", pytest.param("sm_90", marks=pytest.mark.slow)])
def test_estimates_rank_kernels_as_the_compiler_does(size, arch):
    found = of_workloads(size, arch)
    assert len(found) > 40
    assert rank_correlation(found) >= 0.8


@pytest.mark.parametrize("size", SIZES)
def test_estimates_are_near(size):
    errors = [f.registers - plan.registers for _, plan, f in of_workloads(size, "sm_80")]
    assert abs(float(np.median(errors))) <= 3
    assert float(np.mean(np.abs(errors))) <= 6


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_what_the_planner_calls_safe_never_spills(arch):
    found = of_groups(arch) + (of_workloads("small", arch) if arch == "sm_80" else [])
    safe = [(name, figures) for name, plan, figures in found if plan.is_safe]
    assert len(safe) > 0.8 * len(found)
    for name, figures in safe:
        assert figures.spill_bytes == 0, name
    assert any(figures.spill_bytes for _, _, figures in found)  # there are some to tell apart


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_no_safe_kernel_of_a_full_workload_spills(arch):
    for name, plan, figures in of_workloads("full", arch):
        assert not (plan.is_safe and figures.spill_bytes), name
