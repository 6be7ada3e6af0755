"""What the summary of a build holds, as plain data, and its JSON layout."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import tvm
import tvm_ffi

from .. import __version__
from ..analysis.traffic import Totals, measure
from ..codegen.figures import NO_FIGURES, KernelFigures
from ..trace import FeedbackStep, KernelRecord, Trace

#: Version of the JSON layout.
SCHEMA = 2


@dataclass(frozen=True)
class GroupSummary:
    """One group: the ops that became one PrimFunc, and what its kernels move.

    Parameters
    ----------
    name : str
        The PrimFunc; equal groups share one.
    ops : tuple of str
        Its ops, by the names that the edges use.
    kinds : tuple of str
        Their op kinds, in the same order.
    kernels : int
        Launches of one call.
    bytes_read, bytes_written : int
        Modelled traffic in global memory.
    figures : KernelFigures
        What its kernel takes.
    """

    name: str
    ops: tuple[str, ...]
    kinds: tuple[str, ...]
    kernels: int
    bytes_read: int
    bytes_written: int
    figures: KernelFigures

    def to_json(self) -> dict[str, Any]:
        """The group with its figures beside each other."""
        data = {field.name: getattr(self, field.name) for field in fields(self)}
        figures = data.pop("figures")
        return {**data, "ops": list(self.ops), "kinds": list(self.kinds), **asdict(figures)}


@dataclass(frozen=True)
class EdgeSummary:
    """The verdict on one producer and one consumer, with the code and the text of its reason.

    Parameters
    ----------
    producer, consumer : str
        Names of the ops.
    producer_function, consumer_function : str
        The PrimFuncs that they call; for people to read, not part of the JSON.
    fused : bool
        Whether both are in one group.
    reason : str
        Code of the reason, stable across versions.
    message : str
        The reason as a sentence.
    """

    producer: str
    consumer: str
    producer_function: str
    consumer_function: str
    fused: bool
    reason: str
    message: str


@dataclass(frozen=True)
class Summary:
    """What one build decided, and what it costs against the same model built in other ways.

    Parameters
    ----------
    versions : mapping of str to str
        Of TVM, of this package and of Python.
    target : str
        The target's tag, or the target written out.
    policy : str
        Name of the policy.
    limits : mapping of str to object
        The limits by name.
    totals : mapping of str to Totals or None
        Kernels and bytes of one call, under ``"unfused"``, ``"stock"`` and ``"ours"``; None where
        it was not asked for or could not be built.
    groups : tuple of GroupSummary
        In the order of the model.
    edges : tuple of EdgeSummary
        One for each producer and consumer.
    kernels : mapping of str to KernelRecord
        Every scheduled PrimFunc, those that are no group too.
    feedback : tuple of FeedbackStep
        What the compiler's figures led to.
    notes : tuple of str
        What did not go as planned, in sentences.
    seconds : mapping of str to float
        Time spent in each phase.
    """

    versions: Mapping[str, str]
    target: str
    policy: str
    limits: Mapping[str, Any]
    totals: Mapping[str, Totals | None]
    groups: tuple[GroupSummary, ...]
    edges: tuple[EdgeSummary, ...]
    kernels: Mapping[str, KernelRecord]
    feedback: tuple[FeedbackStep, ...]
    notes: tuple[str, ...]
    seconds: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        """The summary in the layout of version ``SCHEMA``, ready for ``json.dump``."""
        return {
            "schema": SCHEMA,
            "versions": dict(self.versions),
            "target": self.target,
            "policy": self.policy,
            "limits": dict(self.limits),
            "kernels": {
                way: t and {"other": t.kernels_other, "heavy": t.kernels_heavy}
                for way, t in self.totals.items()
            },
            "bytes": {
                way: t and {"other": t.bytes_other, "heavy": t.bytes_heavy}
                for way, t in self.totals.items()
            },
            "groups": [group.to_json() for group in self.groups],
            "edges": [
                {
                    "producer": edge.producer,
                    "consumer": edge.consumer,
                    "fused": edge.fused,
                    "reason": edge.reason,
                    "message": edge.message,
                }
                for edge in self.edges
            ],
            "figures": [
                {"name": name, "rule": record.rule, **asdict(record.figures or NO_FIGURES)}
                for name, record in self.kernels.items()
            ],
            "feedback": [
                {**asdict(step), "after": [asdict(figures) for figures in step.after]}
                for step in self.feedback
            ],
            "notes": list(self.notes),
            "seconds": {phase: round(seconds, 4) for phase, seconds in self.seconds.items()},
        }


def versions() -> dict[str, str]:
    """Versions of everything that decides what a build comes out as."""
    return {
        "tvm": str(tvm.__version__),
        "tvm_ffi": str(tvm_ffi.__version__),
        "tvm_fusion": __version__,
        "python": platform.python_version(),
    }


def group_summaries(
    trace: Trace, mod: tvm.IRModule, assume: Mapping[str, int] | None = None
) -> tuple[GroupSummary, ...]:
    """The groups of a trace with the figures of their PrimFuncs.

    Parameters
    ----------
    trace : Trace
        Recorded while ``mod`` was made.
    mod : tvm.IRModule
        The fused and scheduled module.
    assume : mapping of str to int, optional
        Values of symbolic extents by name.
    """
    traffic = {group.name: measure(mod[group.name], assume) for group in trace.groups}
    return tuple(
        GroupSummary(
            name=group.name,
            ops=group.ops,
            kinds=tuple(block.graph.ops[block.graph.index[op]].kind.value for op in group.ops),
            kernels=traffic[group.name].kernels,
            bytes_read=traffic[group.name].bytes_read,
            bytes_written=traffic[group.name].bytes_written,
            figures=trace.kernels[group.name].figures or NO_FIGURES,
        )
        for block in trace.blocks
        for group in block.groups
    )


def edge_summaries(trace: Trace) -> tuple[EdgeSummary, ...]:
    """The decisions of a trace."""
    return tuple(
        EdgeSummary(
            decision.producer,
            decision.consumer,
            block.graph.ops[block.graph.index[decision.producer]].function,
            block.graph.ops[block.graph.index[decision.consumer]].function,
            decision.fused,
            decision.reason.code,
            decision.reason.message,
        )
        for block in trace.blocks
        for decision in block.decisions
    )
