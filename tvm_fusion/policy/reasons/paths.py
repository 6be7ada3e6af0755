"""Reasons of ``dominator``, which ``stitch`` shares for what lies around contractions."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Reason


@dataclass(frozen=True)
class SeveralReaders(Reason):
    """The value is needed by several groups, or leaves the block as well.

    ``stitch`` says so only behind a contraction.
    """

    op: str
    readers: int
    code = "several_readers"
    template = "{op} is needed in {readers} places (a function output counts as one)"
    remedy = "{op} were needed in one place: compute it twice in the model, if it is cheap"


@dataclass(frozen=True)
class PathBlocked(Reason):
    """Between the producer and its post-dominator stands an op that cannot be fused through."""

    op: str
    sink: str
    blocker: str
    code = "path_blocked"
    template = "between {op} and {sink}, where its paths meet, {blocker} cannot be fused through"
    remedy = "{blocker} did not stand between them"


@dataclass(frozen=True)
class TwoAnchors(Reason):
    """Each of the two needs a loop nest of its own: a reduction, norm or contraction."""

    first: str
    second: str
    code = "two_anchors"
    template = "{first} and {second} each need a loop nest of their own"
    remedy = "one of them were elementwise; policy stitch fuses reductions with each other"


@dataclass(frozen=True)
class KindsDoNotMatch(Reason):
    """The pair of kinds is none that the policy fuses, such as elementwise into softmax."""

    producer: str
    producer_kind: str
    consumer: str
    consumer_kind: str
    code = "kinds"
    template = "{producer} ({producer_kind}) is not fused into {consumer} ({consumer_kind})"
    remedy = "the policy were stitch, which looks at loops and not at kinds"


@dataclass(frozen=True)
class Cyclic(Reason):
    """The group would have to run both before and after an op outside of it."""

    op: str
    code = "cyclic"
    template = "fusing would make {op} wait for a result that needs {op} itself"
    remedy = "nothing outside of the group stood between its ops"


@dataclass(frozen=True)
class TooLargeToTry(Reason):
    """A join beyond stock's would make a group of more ops than are tried: it takes too long.

    What stock fuses has no such limit.
    """

    ops: int
    most: int
    code = "too_large_to_try"
    template = "the group would have {ops} ops; joins beyond stock's are tried up to {most}"
    remedy = "the group had {most} ops or fewer"
    scarce = "ops in a group"
