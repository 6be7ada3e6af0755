"""Reasons of ``stitch``: why one kernel is not planned for two, or does not pay."""

from __future__ import annotations

from dataclasses import dataclass

from .base import PairReason, Reason


@dataclass(frozen=True)
class BesideContraction(PairReason):
    """One of the two is a contraction, which takes elementwise ops behind it and index maps before
    it, nothing else.

    Row work among the tiles of a product would keep the product from being fast.
    """

    code = "contraction"
    template = "{first} and {second} stay apart: a contraction is no place for other work"
    remedy = (
        "{second} were an elementwise op that nothing but the contraction feeds, or {first} an "
        "index map"
    )


@dataclass(frozen=True)
class NoCommonAxis(PairReason):
    """The results have no axis in common that both walk alike, and that thread blocks could share.

    The message names what walks it otherwise. Each element of one needs all of the other.
    """

    why: str
    code = "no_common_axis"
    template = "{first} with {second}: {why}"
    remedy = "both walked some axis of their results alike"


@dataclass(frozen=True)
class SymbolicRow(PairReason):
    """What a thread block would have to hold has an extent that is known at run time only.

    Make the extent static, if it is.
    """

    why: str
    code = "symbolic_row"
    template = "{first} with {second}: {why}"
    remedy = "the extent were static"


@dataclass(frozen=True)
class Recompute(PairReason):
    """Something expensive would be evaluated again for each element that it is broadcast to."""

    factor: float
    why: str
    code = "recompute"
    template = "{first} with {second}: {why}"
    remedy = "what is broadcast were cheap to evaluate again"
    scarce = "arithmetic"


@dataclass(frozen=True)
class NoPlan(PairReason):
    """No kernel is planned for the two, by a rule that has no reason of its own."""

    rule: str
    why: str
    code = "no_plan"
    template = "{first} with {second}: {why} ({rule})"


@dataclass(frozen=True)
class NoBenefit(PairReason):
    """By a roofline model one kernel takes no less time than two.

    Mostly it would have too few thread blocks, or repeat much work.
    """

    microseconds_apart: float
    microseconds_together: float
    thread_blocks: int
    code = "no_benefit"
    template = (
        "{first} with {second} would take {microseconds_together} us in one kernel of "
        "{thread_blocks} thread blocks, {microseconds_apart} us apart"
    )
    remedy = "one kernel took less than {microseconds_apart} us"
    scarce = "time"


@dataclass(frozen=True)
class TooManyNests(Reason):
    """The group would have more loop nests than are planned together."""

    nests: int
    most: int
    code = "too_many_nests"
    template = "the group would have {nests} loop nests; up to {most} are planned together"
    remedy = "the group had {most} loop nests or fewer"
    scarce = "loop nests"
