"""Why a pair needs no further kernel: it is fused, or one of the two is a view."""

from __future__ import annotations

from dataclasses import dataclass

from .base import DUPLICATED, FUSED, Reason


@dataclass(frozen=True)
class Fused(Reason):
    """Both ops are in one group."""

    group_size: int
    code = "fused"
    template = "in one group of {group_size} ops"
    verdict = FUSED


@dataclass(frozen=True)
class Duplicated(Reason):
    """Both are in one group, and the producer is repeated for this reader.

    Another op makes the same from the same. To compute a cheap value once for each reader costs
    less than to write it for all of them.
    """

    op: str
    original: str
    group_size: int
    code = "duplicated"
    template = "{op} repeats {original} for this reader, in one group of {group_size} ops"
    verdict = DUPLICATED


@dataclass(frozen=True)
class View(Reason):
    """One of the two is a pure reshape at the rim of a group.

    It becomes a view and costs no kernel, so nothing is to be gained by fusing it.
    """

    op: str
    code = "view"
    template = "{op} only reshapes: it becomes a view and costs no kernel"
    is_free = True
