"""Reasons of ``stitch``: why one kernel is not planned for two, or does not pay."""

from __future__ import annotations

from dataclasses import dataclass

from .base import PairReason, Reason
from .example import Example


@dataclass(frozen=True)
class NoCommonAxis(PairReason):
    """The results have no axis in common that both walk alike, and that thread blocks could share.

    The message names what walks it otherwise. Each element of one needs all of the other.
    """

    why: str
    code = "no_common_axis"
    policies = ("stitch",)
    template = "{who}: {why}"
    remedy = "both walked some axis of their results alike"
    example = Example(
        """
        def main(x: R.Tensor((1024, 1024), "float32")):
            a = R.nn.softmax(x, axis=1)
            b = R.nn.softmax(a, axis=0)
            return b
        """,
        ("a", "b"),
    )
    near_miss = example.but("axis=0", "axis=1")


@dataclass(frozen=True)
class SymbolicRow(PairReason):
    """What a thread block would have to hold has an extent that is known at run time only.

    Rows of symbolic length are planned where they are contiguous, of one symbolic length, and
    reduced to one element each. Make the extent static, if it is.
    """

    why: str
    code = "symbolic_row"
    policies = ("stitch",)
    template = "{who}: {why}"
    remedy = "the extent were static"
    example = Example(
        """
        def main(x: R.Tensor(("n", 1024), "float32")):
            a = R.nn.softmax(x, axis=0)
            b = R.nn.softmax(a, axis=0)
            return b
        """,
        ("a", "b"),
    )
    near_miss = example.but('"n"', "512")


@dataclass(frozen=True)
class Recompute(PairReason):
    """Something expensive would be evaluated again for each element that it is broadcast to.

    The figure says how often. Apart it is faster.
    """

    factor: float
    why: str
    code = "recompute"
    policies = ("stitch",)
    template = "{who}: {why}"
    remedy = "what is broadcast were cheap to evaluate again"
    scarce = "arithmetic"
    example = Example(
        """
        def main(x: R.Tensor((512,), "float32"), y: R.Tensor((1024, 512), "float32")):
            a = R.nn.gelu(x)
            b = R.nn.gelu(a)
            c = R.add(b, y)
            d = R.nn.softmax(c, axis=1)
            return d
        """,
        ("b", "c"),
    )
    near_miss = example.but("R.nn.gelu(a)", "R.nn.relu(a)")


@dataclass(frozen=True)
class NoPlan(PairReason):
    """No kernel is planned for the two, by a rule that has no reason of its own.

    The message ends with the name of the rule, which [kernels.md](kernels.md#what-is-refused)
    explains.
    """

    rule: str
    why: str
    code = "no_plan"
    policies = ("stitch",)
    template = "{who}: {why} ({rule})"
    example = Example(
        """
        def main(x: R.Tensor((1, 255, 32, 32), "float32")):
            a = R.nn.relu(x)
            b = R.nn.max_pool2d(a, pool_size=(3, 3), padding=(1, 1))
            return b
        """,
        ("a", "b"),
    )
    near_miss = example.but("(1, 255, 32, 32)", "(1, 256, 32, 32)")


@dataclass(frozen=True)
class NoBenefit(PairReason):
    """By a roofline model one kernel takes no less time than two.

    Mostly it would have too few thread blocks, or repeat much work.
    """

    microseconds_apart: float
    microseconds_together: float
    thread_blocks: int
    code = "no_benefit"
    policies = ("stitch",)
    template = (
        "{who} would take {microseconds_together} us in one kernel of "
        "{thread_blocks} thread blocks, {microseconds_apart} us apart"
    )
    remedy = "one kernel took less than {microseconds_apart} us"
    scarce = "time"
    example = Example(
        """
        def main(x: R.Tensor((32768,), "float32")):
            a = R.sum(x)
            b = R.divide(x, a)
            return b
        """,
        ("a", "b"),
    )
    near_miss = example.but("32768", "16384")


@dataclass(frozen=True)
class TooManyNests(Reason):
    """The group would have more loop nests than are planned together.

    Planning takes time that grows with their number. An op like softmax has several.
    """

    nests: int
    most: int
    code = "too_many_nests"
    policies = ("stitch",)
    template = "the group would have {nests} loop nests; up to {most} are planned together"
    remedy = "the group had {most} loop nests or fewer"
    scarce = "loop nests"
    example = Example(
        """
        def main(x: R.Tensor((16, 32), "float32")):
            v0 = R.exp(x)
            v{i} = R.exp(v{i - 1})  # for i = 1 to 253
            w0 = R.nn.softmax(v253, axis=1)
            w{i} = R.exp(w{i - 1})  # for i = 1 to 255
            return w255
        """,
        ("v253", "w0"),
    )
    near_miss = Example(
        """
        def main(x: R.Tensor((16, 32), "float32")):
            v0 = R.exp(x)
            v{i} = R.exp(v{i - 1})  # for i = 1 to 253
            w0 = R.nn.softmax(v253, axis=1)
            w{i} = R.exp(w{i - 1})  # for i = 1 to 254
            return w254
        """,
        ("v253", "w0"),
    )
