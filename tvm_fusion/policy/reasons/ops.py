"""Reasons that lie in one op, whatever the other is."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Reason


@dataclass(frozen=True)
class Barrier(Reason):
    """One of the two is of a kind that the policy never fuses.

    ``dominator`` and ``stitch`` fuse more kinds than ``single_chain``. A wrong kind can be
    overruled with the attribute ``tvm_fusion.op_kind`` of the PrimFunc.
    """

    op: str
    kind: str
    code = "barrier"
    template = "{op} is {kind}, which this policy does not fuse"
    remedy = "{op} were of a kind that the policy fuses"


@dataclass(frozen=True)
class Blocked(Reason):
    """One of the two belongs to somebody else, has effects, or is excluded by ``no_fuse``.

    The message says which. Operators that are no ``call_tir`` yet need LegalizeOps first.
    """

    op: str
    why: str
    code = "blocked"
    template = "{op} {why}"
    remedy = "{op} were a free call of a PrimFunc"


@dataclass(frozen=True)
class UnreadableNests(Reason):
    """The loops of an op are none that a kernel can be planned from.

    The message says what is in the way.
    """

    op: str
    why: str
    code = "unreadable"
    template = "the loops of {op} are not understood: {why}"
    remedy = "the loops of {op} were sums, products or extrema over plain indices"


@dataclass(frozen=True)
class GatherInside(Reason):
    """The consumer reads at indices that depend on data, from what the group itself makes.

    Any element may be asked for, and only global memory has them all.
    """

    op: str
    code = "gather"
    template = "{op} reads at indices that depend on data, from what the kernel itself computes"
    remedy = "{op} read from a tensor that is there before the kernel starts"
