"""Whether the parts of a report that was read from a file belong together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..policy.reasons import VERDICTS
from .data import GROUP_KINDS, ReportData


def first_contradiction(report: ReportData) -> str:
    """What is wrong with a report, as a sentence; empty where nothing is.

    Parameters
    ----------
    report : ReportData
        As it was read.
    """
    return next(_contradictions(report), "")


def _contradictions(report: ReportData) -> Iterator[str]:
    ops = {op.name for op in report.ops}
    groups = {group.name: group for group in report.groups}
    kernels = {kernel.name for kernel in report.kernels}
    members = [op for group in report.groups for op in group.ops]
    if sorted(members) != sorted(op.name for op in report.ops) or len(ops) != len(members):
        yield "an op is in no group, or in several"
    if len(groups) != len(report.groups):
        yield "two groups have one name"
    for group in report.groups:
        if group.kind not in GROUP_KINDS:
            yield f"group {group.name!r} is of kind {group.kind!r}"
        if not group.ops or (group.kernel and group.kernel not in kernels):
            yield f"group {group.name!r} has no ops, or a kernel that is not there"
    for op in report.ops:
        if op.group not in groups or op.name not in groups[op.group].ops:
            yield f"op {op.name!r} is not in its group"
    for names in _pairs(report):
        if not ops.issuperset(names):
            yield f"a pair of {', '.join(names)} names an op that is not there"
    reasons = [*(e.reason for e in report.edges), *(s.reason for s in report.siblings)]
    for reason in reasons:
        if reason.verdict not in VERDICTS:
            yield f"a decision is {reason.verdict!r}"


def _pairs(report: ReportData) -> Iterable[tuple[str, ...]]:
    """Names of all ops that edges and siblings refer to."""
    yield from ((e.producer, e.consumer, *e.tried) for e in report.edges)
    yield from ((s.first, s.second, *s.tried) for s in report.siblings)
