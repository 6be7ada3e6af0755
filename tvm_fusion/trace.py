"""What a build decided, recorded while it runs.

``with record() as trace:`` around any build collects the decisions of every pass of this package
that runs inside of it. The recorder is a context variable: nothing global, nothing in the module.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from .analysis import DataflowGraph
from .analysis.bindings import TensorType
from .codegen import KernelFigures
from .planning import KernelPlan
from .policy import Decision, SiblingDecision


@dataclass(frozen=True)
class GroupRecord:
    """A group as it was emitted.

    Parameters
    ----------
    name : str
        The PrimFunc that the group became; equal groups share one.
    ops : tuple of str
        Names of its ops in the graph.
    """

    name: str
    ops: tuple[str, ...]


@dataclass(frozen=True)
class BlockRecord:
    """What was decided on one dataflow block.

    Parameters
    ----------
    function : str
        The Relax function.
    policy : str
        Name of the policy.
    graph : DataflowGraph
        The ops that the policy saw.
    groups : tuple of GroupRecord
        The groups that were emitted.
    decisions : tuple of Decision
        One for each producer and consumer.
    siblings : tuple of SiblingDecision
        One for each two readers of one tensor that were considered.
    tensors : mapping of hashable to TensorType
        Shape and type of every tensor that the ops read or make, by the keys of ``Op.reads``.
    """

    function: str
    policy: str
    graph: DataflowGraph
    groups: tuple[GroupRecord, ...]
    decisions: tuple[Decision, ...]
    siblings: tuple[SiblingDecision, ...]
    tensors: Mapping[Hashable, TensorType]


@dataclass(frozen=True)
class KernelRecord:
    """A scheduled PrimFunc.

    Parameters
    ----------
    rule : str
        The schedule rule that was used.
    plan : KernelPlan or None
        What its kernel was written from, if it was.
    figures : KernelFigures or None
        What the kernel takes; None for other targets than CUDA.
    cuda : str
        Its CUDA source; empty for other targets.
    """

    rule: str
    plan: KernelPlan | None = None
    figures: KernelFigures | None = None
    cuda: str = ""


@dataclass(frozen=True)
class FeedbackStep:
    """What was done about a kernel that the compiler's figures spoke against.

    Parameters
    ----------
    group : str
        The ops of the kernel, or the PrimFunc.
    problem : str
        Code of the reason.
    message : str
        The reason as a sentence.
    action : str
        ``"rescheduled"``, ``"split"``, or ``"kept"`` where nothing better was found.
    before : KernelFigures or None
        What it took.
    after : tuple of KernelFigures
        What the kernels in its place take; empty where it was kept.
    """

    group: str
    problem: str
    message: str
    action: str
    before: KernelFigures | None
    after: tuple[KernelFigures, ...]


@dataclass(frozen=True)
class Span:
    """A phase of a build.

    Parameters
    ----------
    name : str
        The phase, behind those that it is part of: ``"fuse/FuseOps/policy"``.
    start, seconds : float
        When it began, after the recorder, and how long it took.
    """

    name: str
    start: float
    seconds: float


@dataclass
class Trace:
    """Everything that the passes decided while the recorder was on.

    Parameters
    ----------
    blocks : list of BlockRecord
        One for each dataflow block that FuseOps saw.
    kernels : dict of str to KernelRecord
        Every scheduled PrimFunc.
    feedback : list of FeedbackStep
        What the compiler's figures led to.
    notes : list of str
        What did not go as planned, in sentences.
    spans : list of Span
        The phases, in the order in which they ended. They may lie within each other.
    started : float
        When the recorder began, by ``time.perf_counter``.
    """

    blocks: list[BlockRecord] = field(default_factory=list)
    kernels: dict[str, KernelRecord] = field(default_factory=dict)
    feedback: list[FeedbackStep] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> dict[str, float]:
        """Time spent in each phase, in seconds."""
        total: dict[str, float] = {}
        for span in sorted(self.spans, key=lambda span: span.start):
            total[span.name] = total.get(span.name, 0.0) + span.seconds
        return total

    @property
    def rules(self) -> dict[str, str]:
        """For each scheduled PrimFunc the schedule rule that was used."""
        return {name: kernel.rule for name, kernel in self.kernels.items()}

    @property
    def decisions(self) -> list[Decision]:
        """The decisions on all blocks."""
        return [decision for block in self.blocks for decision in block.decisions]

    @property
    def groups(self) -> list[GroupRecord]:
        """The groups of all blocks."""
        return [group for block in self.blocks for group in block.groups]


_CURRENT: ContextVar[Trace | None] = ContextVar("tvm_fusion_trace", default=None)
_PHASE: ContextVar[str] = ContextVar("tvm_fusion_phase", default="")


@contextmanager
def record() -> Iterator[Trace]:
    """Record the decisions of every build inside of the ``with`` block.

    Yields
    ------
    Trace

    Examples
    --------
    >>> with record() as trace:
    ...     mod = OperatorFusion(policy="stitch")(mod)  # doctest: +SKIP
    """
    trace = Trace()
    token, phase_token = _CURRENT.set(trace), _PHASE.set("")
    try:
        yield trace
    finally:
        _CURRENT.reset(token)
        _PHASE.reset(phase_token)


def current_trace() -> Trace | None:
    """The trace that is being recorded, or None."""
    return _CURRENT.get()


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Time a phase of the build that is being recorded; nothing happens where none is.

    Parameters
    ----------
    name : str
        Which one. Within another phase it becomes ``"outer/name"``.
    """
    trace = _CURRENT.get()
    outer = _PHASE.get()
    path = f"{outer}/{name}" if outer else name
    token = _PHASE.set(path)
    started = time.perf_counter()
    try:
        yield
    finally:
        _PHASE.reset(token)
        if trace is not None:
            seconds = time.perf_counter() - started
            trace.spans.append(Span(path, started - trace.started, seconds))


def log_block(log: logging.Logger, block: BlockRecord) -> None:
    """Write the decisions on a block to a log: a line at level INFO, all pairs at level DEBUG.

    Parameters
    ----------
    log : logging.Logger
        Where to.
    block : BlockRecord
        What was decided.
    """
    log.info(
        "%s: %d ops, %d groups by policy %s, %d pairs not fused",
        block.function,
        len(block.graph),
        len(block.groups),
        block.policy,
        sum(not d.fused and not d.reason.is_free for d in block.decisions),
    )
    if not log.isEnabledFor(logging.DEBUG):
        return
    for group in block.groups:
        log.debug("group %s: %s", group.name, ", ".join(group.ops))
    for edge in block.decisions:
        verdict, reason = edge.reason.verdict, edge.reason
        log.debug("%s -> %s %s: %s", edge.producer, edge.consumer, verdict, reason.message)
    for pair in block.siblings:
        verdict, reason = pair.reason.verdict, pair.reason
        log.debug("%s | %s %s: %s", pair.first, pair.second, verdict, reason.message)
