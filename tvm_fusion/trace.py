"""What a build decided, recorded while it runs.

``with record() as trace:`` around any build collects the decisions of every pass of this package
that runs inside of it. The recorder is a context variable: nothing global, nothing in the module.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from .analysis import DataflowGraph
from .codegen import KernelFigures
from .planning import KernelPlan
from .policy import Decision


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
    """

    function: str
    policy: str
    graph: DataflowGraph
    groups: tuple[GroupRecord, ...]
    decisions: tuple[Decision, ...]


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
    """

    rule: str
    plan: KernelPlan | None = None
    figures: KernelFigures | None = None


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
    seconds : dict of str to float
        Time spent in each phase, in seconds.
    """

    blocks: list[BlockRecord] = field(default_factory=list)
    kernels: dict[str, KernelRecord] = field(default_factory=dict)
    feedback: list[FeedbackStep] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

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
    token = _CURRENT.set(trace)
    try:
        yield trace
    finally:
        _CURRENT.reset(token)


def current_trace() -> Trace | None:
    """The trace that is being recorded, or None."""
    return _CURRENT.get()
