"""Every reason has an example of which it holds and one of which it just does not."""

from __future__ import annotations

import re

import pytest
from conftest import make_cuda_target
from support import legalize
from tvm.script import from_source

import tvm_fusion as tf
from tvm_fusion import codegen
from tvm_fusion.policy.reasons import (
    POLICIES,
    REFUSED,
    Example,
    KindsDoNotMatch,
    Reason,
    RowDoesNotFit,
    SharedMemory,
)
from tvm_fusion.policy.reasons.page import concrete_reasons

REASONS = concrete_reasons()


def name_of(value: object) -> str:
    return value.__name__ if isinstance(value, type) else ""


def all_reasons(base: type[Reason] = Reason) -> list[type[Reason]]:
    """All classes with a code that are derived from one."""
    derived = [c for direct in base.__subclasses__() for c in (direct, *all_reasons(direct))]
    return [reason for reason in derived if reason.code]


def skip_without_a_compiler() -> None:
    if codegen.find_compiler() is None:
        pytest.skip("no CUDA compiler is installed")


def reason_of(example: Example, monkeypatch: pytest.MonkeyPatch) -> Reason:
    """What is said of the pair of an example when it is fused."""
    if example.compiled:
        monkeypatch.delenv("TVM_FUSION_CUDA_COMPILER", raising=False)
        skip_without_a_compiler()
    limits = tf.Limits(**example.limits)
    feedback = "compiler" if example.compiled else "off"
    fuse = tf.transform.FuseOps(example.policy, limits, example.no_fuse, feedback)
    with make_cuda_target(), tf.record() as trace:
        fuse(legalize(from_source(example.script)))
    (block,) = trace.blocks
    edges = {(d.producer, d.consumer): d.reason for d in block.decisions}
    siblings = {(d.first, d.second): d.reason for d in block.siblings}
    return {**siblings, **edges}[example.pair]


def test_every_reason_is_on_the_page_once():
    assert sorted(REASONS, key=name_of) == sorted(all_reasons(), key=name_of)


@pytest.mark.parametrize("reason", REASONS, ids=name_of)
def test_a_reason_is_documented(reason):
    assert reason.__doc__
    assert reason.template
    assert set(reason.policies) <= set(POLICIES)
    for example in (reason.example, reason.near_miss):
        assert example.policy in POLICIES
    assert reason.example.policy in reason.policies
    assert reason.example != reason.near_miss
    assert bool(reason.limit) == bool(reason.needed)


@pytest.mark.filterwarnings("ignore:a group is emitted unfused")
@pytest.mark.parametrize("reason", REASONS, ids=name_of)
def test_the_reason_holds_of_its_example(reason, monkeypatch):
    found = reason_of(reason.example, monkeypatch)
    assert type(found) is reason
    assert "{" not in found.message + found.would_fuse_if


@pytest.mark.parametrize("reason", REASONS, ids=name_of)
def test_the_reason_does_not_hold_of_its_near_miss(reason, monkeypatch):
    """The pair of a refusal is then fused."""
    found = reason_of(reason.near_miss, monkeypatch)
    assert type(found) is not reason
    assert reason.verdict != REFUSED or found.fused, found.message


@pytest.mark.parametrize("reason", [r for r in REASONS if r.limit], ids=name_of)
def test_the_limit_that_a_reason_asks_for_is_enough(reason, monkeypatch):
    found = reason_of(reason.example, monkeypatch)
    assert list(found.limits_needed) == [reason.limit]
    example = reason.example.but(limits={**reason.example.limits, **found.limits_needed})
    assert reason_of(example, monkeypatch).fused


@pytest.mark.parametrize(
    ("reason", "policy"),
    [(r, policy) for r in REASONS for policy in POLICIES if re.search(rf"\b{policy}\b", r.remedy)],
    ids=name_of,
)
def test_the_policy_that_a_reason_asks_for_fuses_the_pair(reason, policy, monkeypatch):
    assert reason_of(reason.example.but(policy=policy), monkeypatch).fused


def test_no_policy_is_asked_for_beside_a_contraction():
    beside = KindsDoNotMatch("exp", "ELEMENTWISE", "dot", "CONTRACTION")
    assert beside.would_fuse_if == "exp were an index map, or dot an elementwise op"


def test_shared_memory_that_no_limit_grants_is_not_asked_for():
    for reason in (
        SharedMemory("sum", 1000, 500, attainable=False),
        RowDoesNotFit("exp", "sum", 1000, 500, attainable=False),
    ):
        assert not reason.limits_needed
        assert reason.would_fuse_if.startswith("a thread block of this GPU could have 1000 bytes")


def test_a_repeated_line_counts_up_or_down():
    up = Example(
        "def main(x):\n    v{i} = f(v{i - 1})  # for i = 1 to 2\n    return v2", ("a", "b")
    )
    assert "    v1 = f(v0)\n        v2 = f(v1)\n" in up.script
    down = up.but("1 to 2", "2 to 1").but("{i - 1}", "{i + 1}")
    assert "    v2 = f(v3)\n        v1 = f(v2)\n" in down.script


def test_a_change_of_a_source_must_change_it():
    example = Example("def main(x):\n    return x", ("a", "b"))
    assert example.but("return x", "return y").text.endswith("return y")
    with pytest.raises(ValueError, match="'z' is not exactly once"):
        example.but("z", "y")
