"""A refusal that names a limit is right about it: at that value the very check passes.

Each refused step is replayed on the ops that were tried: under the limits that it was refused
under, where it has to be refused again, and under those that the reason asks for.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import random_modules
from test_dominator import RANDOM_OPS
from test_dominator import random_graph as random_small_graph
from test_report import ends_of
from test_stitch import block_graph

import tvm_fusion as tf
from tvm_fusion import Limits, Reason
from tvm_fusion.analysis import DataflowGraph
from tvm_fusion.device import Device
from tvm_fusion.policy import get_policy
from tvm_fusion.policy.base import Refusal, parting
from tvm_fusion.policy.budget import count_refusal
from tvm_fusion.policy.reasons import OutOfFusions, TooDeep
from tvm_fusion.policy.single_chain import _Run as SingleChainRun
from tvm_fusion.policy.union import GrowingGroups
from tvm_fusion.policy.units import UnitPlanner
from tvm_fusion.workloads import WORKLOADS, small

DEVICE = Device(opt_in_shared_memory_bytes=163 * 1024)

#: Limits under which something is refused, by field.
TIGHT = {
    "max_depth": (1, 2, 3, 5),
    "max_group_size": (1, 2, 3, 5),
    "max_fusions": (0, 1, 2, 5),
    "max_kernel_args": (2, 3, 4, 6),
    "shared_memory_bytes": (0, 64, 1024),
}

#: Fields whose smallest sufficient value a reason gives exactly. A kernel may be planned otherwise
#: within a little less shared memory.
EXACT = ("max_depth", "max_group_size", "max_fusions", "max_kernel_args")


def replay(
    policy: str, graph: DataflowGraph, ops: tuple[int, ...], reason: Reason, limits: Limits
) -> Reason | None:
    """What is said of one kernel for ``ops`` under ``limits``, at the step of ``reason``."""
    merges = len(ops) - 1
    before = reason.fusions - merges if isinstance(reason, OutOfFusions) else 0
    if policy == "single_chain":
        run = SingleChainRun(graph, limits, DEVICE, "thread_block")
        run.fusions = before
        return run._refusal(list(ops[:-1]), ops[-1])
    if policy == "dominator" or graph.ops[ops[0]].nests is None:
        groups = GrowingGroups(graph, limits, DEVICE, "thread_block")
        groups.fusions = before
        return groups.merge(ops, ops[-1])
    planner = UnitPlanner(graph, limits, DEVICE)
    found = count_refusal(limits, len(ops), before + merges) or planner.plan(ops, "a", "b")
    return found if isinstance(found, Reason) else None


def check_refusals(policy: str, graph: DataflowGraph, limits: Limits, seen: Counter) -> None:
    """Replay all refusals of one graph that name a limit."""
    found = get_policy(policy).partition(graph, limits, DEVICE)
    for decision in (*found.decisions, *found.siblings):
        reason = decision.reason
        if not reason.limits_needed:
            continue
        assert decision.tried, reason
        ops = tuple(graph.index[name] for name in decision.tried)
        again = replay(policy, graph, ops, reason, limits)
        assert again is not None, f"not refused when replayed: {reason}"
        assert again.code == reason.code
        enough = replace(limits, **reason.limits_needed)
        passed = replay(policy, graph, ops, reason, enough)
        assert passed is None or passed.code != reason.code, (reason, passed)
        ((field, value),) = reason.limits_needed.items()
        assert reason.would_fuse_if
        assert str(value) in reason.would_fuse_if
        assert reason.resource
        if field in EXACT and value - 1 > getattr(limits, field):
            short = replay(policy, graph, ops, reason, replace(limits, **{field: value - 1}))
            assert short is not None
            assert short.code == reason.code
        seen[reason.code] += 1


@pytest.mark.parametrize("policy", ["single_chain", "dominator", "stitch"])
def test_refusals_on_random_modules_pass_at_the_limit_that_they_name(policy):
    seen: Counter[str] = Counter()
    for seed in range(24):
        graph = block_graph(random_modules.random_module(seed, most_ops=16))
        for field, values in TIGHT.items():
            for value in values:
                check_refusals(policy, graph, Limits(**{field: value}), seen)
    expected = {"max_depth", "max_group_size", "max_fusions", "kernel_args", "shared_memory"}
    assert set(seen) == expected, seen
    assert min(seen.values()) >= 5, seen


@pytest.mark.parametrize("policy", ["single_chain", "dominator"])
def test_refusals_on_random_graphs_pass_at_the_limit_that_they_name(policy):
    seen: Counter[str] = Counter()
    for seed in range(300):
        graph = random_small_graph(seed, RANDOM_OPS)
        field = list(TIGHT)[seed % len(TIGHT)]
        for value in TIGHT[field]:
            check_refusals(policy, graph, Limits(**{field: value}), seen)
    assert min(seen.values()) >= 5, seen


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_refusals_on_networks_pass_at_the_limit_that_they_name(name):
    graph = block_graph(small(name))
    seen: Counter[str] = Counter()
    for field, values in TIGHT.items():
        check_refusals("stitch", graph, Limits(**{field: values[1]}), seen)
    assert seen


def test_of_several_cuts_the_one_that_parted_a_pair_is_told():
    first, second, third = TooDeep(9, 1), TooDeep(5, 1), TooDeep(3, 1)
    cuts = [Refusal(first, (0, 1, 2, 3, 4)), Refusal(second, (0, 1, 2)), Refusal(third, (3, 4))]
    assert parting(cuts, 0, 3).reason == first
    assert parting(cuts, 0, 2).reason == second
    assert parting(cuts, 4, 3).reason == third
    assert parting(cuts, 0, 5) is None


def test_shared_memory_that_no_gpu_grants_is_not_asked_for():
    """Beyond what the GPU has, a limit helps nothing, and the reason says so."""
    graph = block_graph(small("softmax_chain"))
    tiny = Device(opt_in_shared_memory_bytes=8, shared_memory_bytes=8)
    found = get_policy("stitch").partition(graph, Limits(), tiny)
    reasons = [d.reason for d in found.decisions if d.reason.code == "shared_memory"]
    for reason in reasons:
        assert not reason.limits_needed
        assert "this GPU" in reason.would_fuse_if


# -- what the compiled kernel exceeds --------------------------------------------------------------


def build(**limits):
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TVM_FUSION_CUDA_COMPILER", raising=False)
        return tf.explain(small("mamba_block"), "nvidia/nvidia-a100", limits=Limits(**limits))


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [("registers_per_thread", 24, "registers"), ("min_occupancy", 0.75, "occupancy")],
)
def test_a_kernel_within_what_the_reason_names_is_left_alone(field, value, code):
    """Replayed by a build: under the limit that the reason names the same ops are not split."""
    report = build(**{field: value})
    pairs = [e for e in (*report.edges, *report.siblings) if e.reason.code == code]
    assert pairs, "nothing is refused: the test needs another workload"
    assert all({*ends_of(pair)} <= {*pair.tried} for pair in pairs)
    for needed in {pair.reason.limits_needed[field] for pair in pairs}:
        again = build(**{field: needed})
        split = {e.tried for e in (*again.edges, *again.siblings) if e.reason.code == code}
        for pair in pairs:
            if pair.reason.limits_needed[field] == needed:
                assert pair.tried not in split
