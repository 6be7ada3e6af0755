"""Reasons of ``dominator``, which ``stitch`` shares for what lies around contractions."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Reason
from .example import Example


@dataclass(frozen=True)
class SeveralReaders(Reason):
    """The value is needed by several groups, or leaves the block as well.

    ``stitch`` says so only behind a contraction.
    """

    op: str
    readers: int
    code = "several_readers"
    policies = ("dominator", "stitch")
    template = "{op} is needed in {readers} places (a function output counts as one)"
    remedy = "{op} were needed in one place only"
    example = Example(
        """
        def main(x: R.Tensor((64, 128), "float32")):
            a = R.exp(x)
            b = R.log(a)
            c = R.sqrt(a)
            return b, c
        """,
        ("a", "b"),
        policy="dominator",
    )
    near_miss = example.but("return b, c", "d = R.add(b, c)\n            return d")


@dataclass(frozen=True)
class PathBlocked(Reason):
    """Between the producer and its post-dominator stands an op that cannot be fused through.

    The post-dominator is the nearest op that all paths out of the producer go through. The message
    names all three. The post-dominator itself may be in the way, mostly since it is in a group with
    another contraction or norm already. ``stitch`` says so only behind a contraction.
    """

    op: str
    sink: str
    blocker: str
    code = "path_blocked"
    policies = ("dominator", "stitch")
    template = "between {op} and {sink}, where its paths meet, {blocker} cannot be fused through"
    remedy = "{blocker} were not on the way from {op} to {sink}"
    example = Example(
        """
        def main(x: R.Tensor((64, 128), "float32")):
            a = R.exp(x)
            b = R.nn.softmax(a, axis=1)
            c = R.add(a, b)
            return c
        """,
        ("a", "c"),
        policy="dominator",
    )
    near_miss = example.but("R.nn.softmax(a, axis=1)", "R.log(a)")

    @property
    def message(self) -> str:
        """One sentence; where the paths meet may be what is in the way."""
        if self.blocker != self.sink:
            return super().message
        return (
            f"the group of {self.sink}, where the paths of {self.op} meet, holds an op that "
            f"{self.op} is not fused into"
        )

    @property
    def would_fuse_if(self) -> str:
        """What would have to be otherwise."""
        if self.blocker != self.sink:
            return super().would_fuse_if
        return f"the group of {self.sink} held no such op"


@dataclass(frozen=True)
class TwoAnchors(Reason):
    """The groups of both hold something that needs a loop nest of its own: a reduction, norm or
    contraction.

    ``stitch`` fuses reductions and norms with each other.
    """

    first: str
    second: str
    code = "two_anchors"
    policies = ("dominator",)
    template = "{first} and {second} each need a loop nest of their own"
    remedy = "{second} were elementwise"
    example = Example(
        """
        def main(x: R.Tensor((64, 128), "float32")):
            a = R.nn.softmax(x, axis=1)
            b = R.nn.softmax(a, axis=1)
            return b
        """,
        ("a", "b"),
        policy="dominator",
    )
    near_miss = example.but("R.nn.softmax(a, axis=1)", "R.log(a)")


@dataclass(frozen=True)
class KindsDoNotMatch(Reason):
    """The pair of kinds is none that the policy fuses, such as elementwise into softmax."""

    producer: str
    producer_kind: str
    consumer: str
    consumer_kind: str
    code = "kinds"
    policies = ("dominator",)
    template = "{producer} ({producer_kind}) is not fused into {consumer} ({consumer_kind})"
    remedy = (
        "the policy were stitch, which looks at loops and not at kinds, and neither were in the "
        "kernel of a contraction"
    )
    example = Example(
        """
        def main(x: R.Tensor((64, 128), "float32")):
            a = R.exp(x)
            b = R.nn.softmax(a, axis=1)
            return b
        """,
        ("a", "b"),
        policy="dominator",
    )
    near_miss = example.but("R.nn.softmax", "R.sum")

    @property
    def would_fuse_if(self) -> str:
        """What would have to be otherwise; no policy has more to offer beside a contraction."""
        if "CONTRACTION" in (self.producer_kind, self.consumer_kind):
            return f"{self.producer} were an index map, or {self.consumer} an elementwise op"
        return super().would_fuse_if


@dataclass(frozen=True)
class Cyclic(Reason):
    """The group would have to run both before and after an op outside of it."""

    op: str
    outside: str
    code = "cyclic"
    policies = ("dominator", "stitch")
    template = "one kernel would need {outside}, which needs {op} of it"
    remedy = "nothing outside of the group stood between its ops"
    example = Example(
        """
        def main(x: R.Tensor((64, 64), "float32"), w: R.Tensor((64, 64), "float32")):
            a = R.nn.softmax(x, axis=1)
            b = R.matmul(a, w)
            c = R.nn.softmax(b, axis=1)
            d = R.add(a, c)
            return d
        """,
        ("a", "d"),
    )
    near_miss = example.but("R.matmul(a, w)", "R.matmul(x, w)")


@dataclass(frozen=True)
class TooLargeToTry(Reason):
    """A join beyond stock's would make a group of more ops than are tried: it takes too long.

    What stock fuses has no such limit. ``stitch`` says so only of joins with a contraction.
    """

    ops: int
    most: int
    code = "too_large_to_try"
    policies = ("dominator", "stitch")
    template = "the group would have {ops} ops; joins beyond stock's are tried up to {most}"
    remedy = "the group had {most} ops or fewer"
    scarce = "ops in a group"
    example = Example(
        """
        def main(x: R.Tensor((64, 128), "float32")):
            v0 = R.sum(x, axis=1)
            v{i} = R.exp(v{i - 1})  # for i = 1 to 64
            return v64
        """,
        ("v0", "v1"),
        policy="dominator",
    )
    near_miss = Example(
        """
        def main(x: R.Tensor((64, 128), "float32")):
            v0 = R.sum(x, axis=1)
            v{i} = R.exp(v{i - 1})  # for i = 1 to 63
            return v63
        """,
        ("v0", "v1"),
        policy="dominator",
    )
