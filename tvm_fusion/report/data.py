"""What a fusion report holds, as plain frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..analysis.traffic import Totals
from ..codegen import KernelFigures
from ..trace import FeedbackStep, Span

#: What a group of ops became.
FUSED_KERNEL = "fused"  #: several ops are one kernel
SINGLE_KERNEL = "single"  #: an op by itself, with a kernel or more
VIEW = "view"  #: a reshape that costs no kernel
OTHER = "other"  #: nothing that a kernel is made for: a library call, a check, a host function

GROUP_KINDS = (FUSED_KERNEL, SINGLE_KERNEL, VIEW, OTHER)


@dataclass(frozen=True)
class DeviceEntry:
    """The GPU that was built for.

    Parameters
    ----------
    name : str
        The target they come from.
    source : str
        Where its figures come from, as a sentence.
    shared_memory_bytes : int
        What one thread block may use under the limits.
    multiprocessors : int
        Streaming multiprocessors.
    memory_bytes_per_second : float
        Peak bandwidth.
    """

    name: str
    source: str
    shared_memory_bytes: int
    multiprocessors: int
    memory_bytes_per_second: float


@dataclass(frozen=True)
class Header:
    """What was built, under which settings, and what came of it.

    Parameters
    ----------
    versions : mapping of str to str
        Of TVM, of this package and of Python.
    target : str
        The target's tag, or the target written out.
    device : DeviceEntry
        The GPU.
    policy : str
        Name of the policy.
    limits : mapping of str to object
        The limits by name.
    no_fuse : tuple of str
        Names of what was left alone; ``"(a predicate)"`` where a function chose it.
    assume : mapping of str to int
        Values of symbolic extents that the counts were made with.
    feedback : str
        What the CUDA compiler's figures were used for.
    compiler : str
        Whose figures they are, with version; empty for estimates.
    totals : mapping of str to Totals or None
        Kernels and bytes of one call, under ``"unfused"``, ``"stock"`` and ``"ours"``; None where
        it was not asked for or could not be built.
    seconds : mapping of str to float
        Time spent in each phase.
    """

    versions: Mapping[str, str]
    target: str
    device: DeviceEntry
    policy: str
    limits: Mapping[str, Any]
    no_fuse: tuple[str, ...]
    assume: Mapping[str, int]
    feedback: str
    compiler: str
    totals: Mapping[str, Totals | None]
    seconds: Mapping[str, float]


@dataclass(frozen=True)
class Moved:
    """Launches of one call, and what they move in global memory by the model."""

    kernels: int = 0
    bytes_read: int = 0
    bytes_written: int = 0

    @property
    def bytes(self) -> int:
        """Bytes read and written."""
        return self.bytes_read + self.bytes_written


@dataclass(frozen=True)
class TensorEntry:
    """A tensor.

    Parameters
    ----------
    name : str
        The op that makes it, with a number where the op makes several, or its name outside.
    shape : tuple of str
        Its extents; a symbolic one as an expression.
    dtype : str
        The element type; empty where it is not known.
    nbytes : int or None
        Its size; None where some extent is not known.
    """

    name: str
    shape: tuple[str, ...]
    dtype: str
    nbytes: int | None


@dataclass(frozen=True)
class OpEntry:
    """An op of the graph, and what it costs by itself.

    Parameters
    ----------
    name : str
        Unique in the report, and the same before and after fusion.
    function : str
        The PrimFunc or operator that it calls.
    origin : str
        The PrimFunc that this one was specialised or split from; empty for most.
    kind : str
        Its op kind.
    block : str
        The Relax function that it stands in.
    group : str
        The group that it belongs to.
    inputs : tuple of str
        Tensors that it reads from outside of the graph.
    is_output : bool
        Whether a result of it leaves the graph.
    before : Moved
        What it costs unfused.
    """

    name: str
    function: str
    origin: str
    kind: str
    block: str
    group: str
    inputs: tuple[str, ...]
    is_output: bool
    before: Moved


@dataclass(frozen=True)
class ReasonEntry:
    """Why a pair was fused or not.

    Parameters
    ----------
    code : str
        Stable across versions.
    verdict : str
        ``"fused"``, ``"duplicated"`` or ``"refused"``.
    message : str
        One sentence with names and figures.
    resource : str
        What there is too little of; empty where it is no matter of amounts.
    would_fuse_if : str
        What would have to be otherwise; empty where nothing is to be gained or done.
    limits_needed : mapping of str to object
        Fields of Limits, and values at which this very check passes.
    figures : mapping of str to object
        The numbers by name.
    is_free : bool
        Nothing is moved although the two are in different kernels.
    """

    code: str
    verdict: str
    message: str
    resource: str
    would_fuse_if: str
    limits_needed: Mapping[str, Any]
    figures: Mapping[str, Any]
    is_free: bool

    @property
    def is_refused(self) -> bool:
        """Whether the two are in different kernels, and it costs something."""
        return self.verdict == "refused" and not self.is_free


@dataclass(frozen=True)
class EdgeEntry:
    """A producer and a consumer.

    Parameters
    ----------
    producer, consumer : str
        Names of the ops.
    tensors : tuple of TensorEntry
        What the one makes and the other reads.
    reason : ReasonEntry
        The decision.
    tried : tuple of str
        The ops that one kernel would have held; empty where only the two were looked at.
    """

    producer: str
    consumer: str
    tensors: tuple[TensorEntry, ...]
    reason: ReasonEntry
    tried: tuple[str, ...]


@dataclass(frozen=True)
class SiblingEntry:
    """Two ops that read the same tensor, neither of which reads the other.

    Parameters
    ----------
    first, second : str
        Names of the ops.
    tensor : str
        What both read: an op, or a tensor from outside.
    reason : ReasonEntry
        The decision.
    tried : tuple of str
        As for :class:`EdgeEntry`.
    """

    first: str
    second: str
    tensor: str
    reason: ReasonEntry
    tried: tuple[str, ...]


@dataclass(frozen=True)
class StorageEntry:
    """Where an intermediate or result of a group lives.

    Parameters
    ----------
    tensor : TensorEntry
        The intermediate.
    place : str
        A place of :data:`tvm_fusion.planning.kernel_plan.PLACES`, or the storage scope that TVM's
        schedule gave it.
    """

    tensor: TensorEntry
    place: str


@dataclass(frozen=True)
class GroupEntry:
    """Ops that became one kernel, or an op that stayed by itself.

    Parameters
    ----------
    name : str
        Unique in the report: the PrimFunc, with a number where it is called several times.
    kernel : str
        The scheduled PrimFunc, a key of ``kernels``; empty for views and what has none.
    kind : str
        One of :data:`GROUP_KINDS`.
    ops : tuple of str
        Its ops.
    storage : tuple of StorageEntry
        Where its intermediates and results live.
    before : Moved
        What its ops cost unfused.
    after : Moved
        What it costs.
    """

    name: str
    kernel: str
    kind: str
    ops: tuple[str, ...]
    storage: tuple[StorageEntry, ...]
    before: Moved
    after: Moved

    @property
    def bytes_saved(self) -> int:
        """Bytes of global memory that fusing saves."""
        return self.before.bytes - self.after.bytes


@dataclass(frozen=True)
class KernelEntry:
    """A scheduled PrimFunc.

    Parameters
    ----------
    name : str
        The PrimFunc.
    rule : str
        The schedule rule.
    layout : str
        How threads are laid out, as a sentence; empty where we did not plan it.
    figures : KernelFigures
        What it takes of a multiprocessor.
    recompute_factor : float
        Arithmetic over the least; 1 where nothing is evaluated twice, and where we did not plan it.
    notes : tuple of str
        What it does that costs more than the least, and why.
    tvmscript : str
        The scheduled PrimFunc.
    cuda : str
        Its CUDA source, without TVM's preamble.
    """

    name: str
    rule: str
    layout: str
    figures: KernelFigures
    recompute_factor: float
    notes: tuple[str, ...]
    tvmscript: str
    cuda: str


@dataclass(frozen=True)
class ReportData:
    """Everything that a report holds.

    Parameters
    ----------
    header : Header
        What was built, and what came of it.
    ops : tuple of OpEntry
        Every op of the graphs, in order.
    edges : tuple of EdgeEntry
        Every producer and consumer, with the decision.
    siblings : tuple of SiblingEntry
        Every two readers of one tensor that were considered.
    groups : tuple of GroupEntry
        Every op is in exactly one; in the order of their first op.
    kernels : tuple of KernelEntry
        Every scheduled PrimFunc, each once.
    feedback : tuple of FeedbackStep
        What the compiler's figures led to.
    assumptions : tuple of str
        What the figures rest on, in sentences.
    notes : tuple of str
        What did not go as planned, in sentences.
    spans : tuple of Span
        The phases of the build.
    """

    header: Header
    ops: tuple[OpEntry, ...]
    edges: tuple[EdgeEntry, ...]
    siblings: tuple[SiblingEntry, ...]
    groups: tuple[GroupEntry, ...]
    kernels: tuple[KernelEntry, ...]
    feedback: tuple[FeedbackStep, ...]
    assumptions: tuple[str, ...]
    notes: tuple[str, ...]
    spans: tuple[Span, ...]
