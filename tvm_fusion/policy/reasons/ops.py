"""Reasons that lie in one op, whatever the other is."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Reason
from .example import Example


@dataclass(frozen=True)
class Barrier(Reason):
    """One of the two is of a kind that the policy never fuses.

    ``dominator`` and ``stitch`` fuse more kinds than ``single_chain``: what is left are ops like
    attention as a whole, and those that nobody understands. A wrong kind can be overruled with the
    attribute ``tvm_fusion.op_kind`` of the PrimFunc.
    """

    op: str
    kind: str
    code = "barrier"
    template = "{op} is {kind}, which this policy does not fuse"
    remedy = "{op} were of a kind that the policy fuses"
    example = Example(
        """
        def main(x: R.Tensor((64, 128), "float32")):
            a = R.exp(x)
            b = R.nn.softmax(a, axis=1)
            return b
        """,
        ("a", "b"),
        policy="single_chain",
    )
    near_miss = example.but("R.nn.softmax", "R.sum")


@dataclass(frozen=True)
class Blocked(Reason):
    """One of the two belongs to somebody else, has effects, or is excluded by ``no_fuse``.

    The message says which. Operators that are no ``call_tir`` yet need LegalizeOps first.
    """

    op: str
    why: str
    code = "blocked"
    template = "{op} {why}"
    remedy = "it were not so that {op} {why}"
    example = Example(
        """
        def main(x: R.Tensor((64, 128), "float32")):
            a = R.nn.softmax(x, axis=1)
            b = R.exp(a)
            return b
        """,
        ("a", "b"),
        no_fuse=("b",),
    )
    near_miss = example.but(no_fuse=())


@dataclass(frozen=True)
class UnreadableNests(Reason):
    """The loops of an op are none that a kernel can be planned from.

    The message says what is in the way.
    """

    op: str
    why: str
    code = "unreadable"
    policies = ("stitch",)
    template = "the loops of {op} are not understood: {why}"
    remedy = "the loops of {op} were sums, products or extrema over plain indices"
    example = Example(
        """
        def main(x: R.Tensor((64, 128), "float32")):
            a = R.exp(x)
            b = R.argmax(a, axis=1)
            return b
        """,
        ("a", "b"),
    )
    near_miss = example.but("R.argmax", "R.max")


@dataclass(frozen=True)
class GatherInside(Reason):
    """The consumer reads at indices that depend on data, from what the group itself makes.

    Any element may be asked for, and only global memory has them all.
    """

    op: str
    code = "gather"
    policies = ("stitch",)
    template = "{op} reads at indices that depend on data, from what the kernel itself computes"
    remedy = "{op} read from a tensor that is there before the kernel starts"
    example = Example(
        """
        def main(x: R.Tensor((64, 128), "float32"), i: R.Tensor((32,), "int64")):
            a = R.exp(x)
            b = R.take(a, i, axis=0, mode="clip")
            return b
        """,
        ("a", "b"),
    )
    near_miss = Example(
        """
        def main(x: R.Tensor((64, 128), "float32"), i: R.Tensor((32,), "int64")):
            a = R.take(x, i, axis=0, mode="clip")
            b = R.exp(a)
            return b
        """,
        ("a", "b"),
    )
