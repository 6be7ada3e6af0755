"""Reasons of ``single_chain``."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Reason
from .example import Example


@dataclass(frozen=True)
class ManyConsumers(Reason):
    """The producer is read more than once; an output of the block counts as a reader."""

    op: str
    consumers: int
    code = "many_consumers"
    policies = ("single_chain",)
    template = "{op} is read {consumers} times (a function output counts as one)"
    remedy = "{op} were read once; policy stitch fuses ops with several readers"
    example = Example(
        """
        def main(x: R.Tensor((64, 128), "float32")):
            a = R.exp(x)
            b = R.sqrt(a)
            return a, b
        """,
        ("a", "b"),
        policy="single_chain",
    )
    near_miss = example.but("return a, b", "return b")


@dataclass(frozen=True)
class ManyProducers(Reason):
    """The consumer reads results of other ops more than once."""

    op: str
    producers: int
    code = "many_producers"
    policies = ("single_chain",)
    template = "{op} reads results of other ops {producers} times"
    remedy = "{op} read one op, once; policies dominator and stitch fuse ops that read several"
    example = Example(
        """
        def main(x: R.Tensor((64, 128), "float32"), y: R.Tensor((64, 128), "float32")):
            a = R.exp(x)
            b = R.sqrt(y)
            c = R.add(a, b)
            return c
        """,
        ("a", "c"),
        policy="single_chain",
    )
    near_miss = Example(
        """
        def main(x: R.Tensor((64, 128), "float32"), y: R.Tensor((64, 128), "float32")):
            a = R.exp(x)
            c = R.add(a, y)
            return c
        """,
        ("a", "c"),
        policy="single_chain",
    )


@dataclass(frozen=True)
class ChainClosed(Reason):
    """The producer is a reduction, which closes its chain: nothing is added behind it."""

    op: str
    code = "chain_closed"
    policies = ("single_chain",)
    template = "{op} is a reduction, which closes a chain"
    remedy = "the policy were stitch, which goes on behind a reduction"
    example = Example(
        """
        def main(x: R.Tensor((64, 128), "float32")):
            a = R.sum(x, axis=1)
            b = R.exp(a)
            return b
        """,
        ("a", "b"),
        policy="single_chain",
    )
    near_miss = Example(
        """
        def main(x: R.Tensor((64, 128), "float32")):
            a = R.exp(x)
            b = R.sum(a, axis=1)
            return b
        """,
        ("a", "b"),
        policy="single_chain",
    )


@dataclass(frozen=True)
class SiblingsApart(Reason):
    """The two read the same tensor, and the policy joins only what passes a value on.

    ``dominator`` fuses two readers of one tensor where all paths out of them meet again,
    ``single_chain`` never does.
    """

    first: str
    second: str
    tensor: str
    code = "siblings"
    policies = ("dominator", "single_chain")
    template = "{first} and {second} both read {tensor}: this policy does not join readers"
    remedy = "the policy were stitch, and reading {tensor} once for both paid"
    example = Example(
        """
        def main(x: R.Tensor((64, 128), "float32")):
            a = R.exp(x)
            b = R.sum(x, axis=1)
            return a, b
        """,
        ("a", "b"),
        policy="dominator",
    )
    near_miss = example.but(policy="stitch")
