"""Why a pair of ops was fused or not: one class a reason, with its figures as fields."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class Reason:
    """Base class. ``code`` is stable across versions; ``template`` is filled from the fields."""

    code: ClassVar[str] = ""
    template: ClassVar[str] = ""
    fused: ClassVar[bool] = False

    @property
    def message(self) -> str:
        """One sentence with the names and figures in it."""
        return self.template.format(**asdict(self))

    @property
    def figures(self) -> dict[str, Any]:
        """The numbers of the reason by name; empty where it has none."""
        return {
            key: value
            for key, value in asdict(self).items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }


@dataclass(frozen=True)
class Decision:
    """The verdict on one producer and one consumer.

    Parameters
    ----------
    producer, consumer : str
        Names of ops of the graph.
    reason : Reason
        Why.
    """

    producer: str
    consumer: str
    reason: Reason

    @property
    def fused(self) -> bool:
        """Whether both ended up in one group."""
        return self.reason.fused


@dataclass(frozen=True)
class Fused(Reason):
    """Both ops are in one group."""

    group_size: int
    code = "fused"
    template = "in one group of {group_size} ops"
    fused = True


@dataclass(frozen=True)
class View(Reason):
    """One of the two is a reshape at the rim of a group: it becomes a view, without a kernel."""

    op: str
    code = "view"
    template = "{op} only reshapes: it becomes a view and costs no kernel"


@dataclass(frozen=True)
class Barrier(Reason):
    """One of the two is of a kind that the policy never fuses."""

    op: str
    kind: str
    code = "barrier"
    template = "{op} is {kind}, which this policy does not fuse"


@dataclass(frozen=True)
class Blocked(Reason):
    """One of the two belongs to somebody else, or has effects."""

    op: str
    why: str
    code = "blocked"
    template = "{op} {why}"


@dataclass(frozen=True)
class ManyConsumers(Reason):
    """The classic rule wants one reader; a function output counts as a reader."""

    op: str
    consumers: int
    code = "many_consumers"
    template = "{op} is read {consumers} times (a function output counts as one)"


@dataclass(frozen=True)
class ManyProducers(Reason):
    """The classic rule wants the consumer to read one op, once."""

    op: str
    producers: int
    code = "many_producers"
    template = "{op} reads results of other ops {producers} times"


@dataclass(frozen=True)
class ChainClosed(Reason):
    """A reduction ends a chain: nothing is added behind it."""

    op: str
    code = "chain_closed"
    template = "{op} is a reduction, which closes a chain"


@dataclass(frozen=True)
class TooDeep(Reason):
    """The group would have more ops than the limit."""

    depth: int
    max_depth: int
    code = "max_depth"
    template = "the group would have {depth} ops, the limit is {max_depth}"


@dataclass(frozen=True)
class TooManyOps(Reason):
    """The group would exceed ``max_group_size``."""

    ops: int
    max_group_size: int
    code = "max_group_size"
    template = "the group would have {ops} ops, max_group_size is {max_group_size}"


@dataclass(frozen=True)
class TooLargeToTry(Reason):
    """A join beyond stock would make a group that takes too long to try."""

    ops: int
    most: int
    code = "too_large_to_try"
    template = "the group would have {ops} ops; joins beyond stock's are tried up to {most}"


@dataclass(frozen=True)
class SharedMemory(Reason):
    """The reduction needs more shared memory than a thread block may have."""

    op: str
    bytes_needed: int
    bytes_allowed: int
    code = "shared_memory"
    template = "{op} needs {bytes_needed} bytes of shared memory, {bytes_allowed} are allowed"


@dataclass(frozen=True)
class TooManyArgs(Reason):
    """The kernel would take more arguments than the limit."""

    args: int
    max_kernel_args: int
    code = "kernel_args"
    template = "the kernel would take {args} arguments, {max_kernel_args} are allowed"


@dataclass(frozen=True)
class OutOfFusions(Reason):
    """``max_fusions`` is spent."""

    max_fusions: int
    code = "max_fusions"
    template = "the {max_fusions} fusions that max_fusions allows are spent"


@dataclass(frozen=True)
class SeveralReaders(Reason):
    """What the producer makes is read by ops of several groups, or leaves the function."""

    op: str
    readers: int
    code = "several_readers"
    template = "{op} is needed in {readers} places (a function output counts as one)"


@dataclass(frozen=True)
class PathBlocked(Reason):
    """An op on the way to the post-dominator is of a kind that does not fit."""

    op: str
    sink: str
    blocker: str
    code = "path_blocked"
    template = "between {op} and {sink}, where its paths meet, {blocker} cannot be fused through"


@dataclass(frozen=True)
class TwoAnchors(Reason):
    """Each side has a reduction, norm or contraction of its own."""

    first: str
    second: str
    code = "two_anchors"
    template = "{first} and {second} each need a loop nest of their own"


@dataclass(frozen=True)
class KindsDoNotMatch(Reason):
    """The pair of kinds is none that the policy fuses."""

    producer: str
    producer_kind: str
    consumer: str
    consumer_kind: str
    code = "kinds"
    template = "{producer} ({producer_kind}) is not fused into {consumer} ({consumer_kind})"


@dataclass(frozen=True)
class Cyclic(Reason):
    """The group would have to run both before and after an op outside of it."""

    op: str
    code = "cyclic"
    template = "fusing would make {op} wait for a result that needs {op} itself"


@dataclass(frozen=True)
class SeveralKernels(Reason):
    """The schedule made more than one kernel of the group."""

    kernels: int
    rule: str
    code = "several_kernels"
    template = "scheduled together ({rule}) they come out as {kernels} kernels, not one"


@dataclass(frozen=True)
class ScheduleFailed(Reason):
    """No schedule rule could handle the group."""

    error: str
    code = "schedule_failed"
    template = "no schedule rule handles the group: {error}"


@dataclass(frozen=True)
class OverLimit(Reason):
    """The scheduled kernel exceeds a limit of the target."""

    resource: str
    needed: int
    allowed: int
    code = "over_limit"
    template = "scheduled together they need {needed} {resource}, {allowed} are allowed"


@dataclass(frozen=True)
class Spills(Reason):
    """The compiled kernel keeps values in memory for want of registers."""

    spill_bytes: int
    registers: int
    code = "spills"
    template = "in one kernel of {registers} registers a thread they spill {spill_bytes} bytes"


@dataclass(frozen=True)
class TooManyRegisters(Reason):
    """The compiled kernel takes more registers than the limit."""

    registers: int
    allowed: int
    code = "registers"
    template = "in one kernel they take {registers} registers a thread, {allowed} are allowed"


@dataclass(frozen=True)
class LowOccupancy(Reason):
    """Fewer thread blocks fit a multiprocessor than the limit wants, and than the parts allow."""

    occupancy: float
    min_occupancy: float
    limiter: str
    code = "occupancy"
    template = (
        "in one kernel they occupy {occupancy:.0%} of a multiprocessor's warps for lack of "
        "{limiter}, at least {min_occupancy:.0%} are wanted"
    )


@dataclass(frozen=True)
class UnreadableNests(Reason):
    """The loop nests of an op are none that a kernel can be planned from."""

    op: str
    why: str
    code = "unreadable"
    template = "the loops of {op} are not understood: {why}"


@dataclass(frozen=True)
class PairReason(Reason):
    """Base class of reasons that hold for two kernels, and speak of one pair of ops in them."""

    first: str
    second: str


@dataclass(frozen=True)
class BesideContraction(PairReason):
    """A contraction takes elementwise ops behind it and index maps before it, nothing else."""

    code = "contraction"
    template = "{first} and {second} stay apart: a contraction is no place for other work"


@dataclass(frozen=True)
class GatherInside(Reason):
    """What an op would gather from was made inside of the group."""

    op: str
    code = "gather"
    template = "{op} reads at indices that depend on data, from what the kernel itself computes"


@dataclass(frozen=True)
class NoCommonAxis(PairReason):
    """The two have no axes that both walk alike and that thread blocks could share out."""

    why: str
    code = "no_common_axis"
    template = "{first} with {second}: {why}"


@dataclass(frozen=True)
class SymbolicRow(PairReason):
    """A row, which a thread block would hold, has an extent that is known at run time only."""

    why: str
    code = "symbolic_row"
    template = "{first} with {second}: {why}"


@dataclass(frozen=True)
class RowDoesNotFit(PairReason):
    """What lies between the two needs more shared memory than a thread block may have."""

    bytes_needed: int
    bytes_allowed: int
    code = "shared_memory"
    template = (
        "what lies between {first} and {second} needs {bytes_needed} bytes of shared memory, "
        "{bytes_allowed} are allowed"
    )


@dataclass(frozen=True)
class Recompute(PairReason):
    """One kernel would compute expensive results over and over."""

    factor: float
    why: str
    code = "recompute"
    template = "{first} with {second}: {why}"


@dataclass(frozen=True)
class NoPlan(PairReason):
    """No kernel is planned for the two, by a rule that has no reason of its own."""

    rule: str
    why: str
    code = "no_plan"
    template = "{first} with {second}: {why} ({rule})"


@dataclass(frozen=True)
class NoBenefit(PairReason):
    """One kernel would take longer than two, by a roofline model."""

    microseconds_apart: float
    microseconds_together: float
    thread_blocks: int
    code = "no_benefit"
    template = (
        "{first} with {second} would take {microseconds_together} us in one kernel of "
        "{thread_blocks} thread blocks, {microseconds_apart} us apart"
    )


@dataclass(frozen=True)
class TooManyNests(Reason):
    """The group would have more loop nests than are planned together."""

    nests: int
    most: int
    code = "too_many_nests"
    template = "the group would have {nests} loop nests; up to {most} are planned together"
