"""Reasons of ``single_chain``."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Reason


@dataclass(frozen=True)
class ManyConsumers(Reason):
    """The producer is read more than once; an output of the block counts as a reader."""

    op: str
    consumers: int
    code = "many_consumers"
    template = "{op} is read {consumers} times (a function output counts as one)"
    remedy = "{op} had one reader; policy stitch fuses several"


@dataclass(frozen=True)
class ManyProducers(Reason):
    """The consumer reads results of other ops more than once."""

    op: str
    producers: int
    code = "many_producers"
    template = "{op} reads results of other ops {producers} times"
    remedy = "{op} read one op, once; policies dominator and stitch fuse more"


@dataclass(frozen=True)
class ChainClosed(Reason):
    """The producer is a reduction, which closes its chain: nothing is added behind it."""

    op: str
    code = "chain_closed"
    template = "{op} is a reduction, which closes a chain"
    remedy = "the policy were dominator or stitch, which go on behind a reduction"


@dataclass(frozen=True)
class SiblingsApart(Reason):
    """The two read the same tensor, and the policy joins only what passes a value on.

    ``dominator`` fuses two readers of one tensor where all paths out of them meet again.
    """

    first: str
    second: str
    tensor: str
    code = "siblings"
    template = "{first} and {second} both read {tensor}: this policy does not join readers"
    remedy = "the policy were stitch, which reads {tensor} once for both where that pays"
