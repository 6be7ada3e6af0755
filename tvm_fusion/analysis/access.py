"""How a block indexes a buffer: at its own place, broadcast, by a static map, or by data."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from .blocks import Access, Block, loads_of, static_int, vars_of


class IndexMap(IntEnum):
    """The relation between where a block writes and where it reads, from simple to opaque."""

    IDENTITY = 0
    """The same element of a buffer of the same shape."""
    PREFIX = 1
    """The same indices into a larger buffer: the leading part of it."""
    BROADCAST = 2
    """Some of the indices, in order; the other axes are broadcast."""
    STATIC = 3
    """Any other function of the iteration variables: transpose, slice, reshape, window."""
    DATA = 4
    """An index that was itself loaded from a tensor."""


def classify_load(block: Block, load: Access, simplify: bool = True) -> IndexMap:
    """Classify one load of a block against the block's first store.

    Parameters
    ----------
    block : Block
        The reading block.
    load : Access
        One of its loads.
    simplify : bool
        Simplify the indices within the domains of the iteration variables first, which turns
        the index maps of many reshapes into plain ones.

    Returns
    -------
    IndexMap
    """
    if any(loads_of(index) for index in load.indices):
        return IndexMap.DATA
    store = block.stores[0]
    analyzer = block.analyzer()
    read, write = list(load.indices), list(store.indices)
    if simplify:
        read = [analyzer.simplify(i) for i in read]
        write = [analyzer.simplify(i) for i in write]
    if len(read) == len(write) and all(_equal(a, b) for a, b in zip(read, write, strict=True)):
        shapes = zip(load.buffer.shape, store.buffer.shape, strict=True)
        same = all(_equal(a, b) or analyzer.can_prove_equal(a, b) for a, b in shapes)
        return IndexMap.IDENTITY if same else IndexMap.PREFIX
    if _is_ordered_subset(read, write, load.buffer.shape):
        return IndexMap.BROADCAST
    return IndexMap.STATIC


def _equal(a: Any, b: Any) -> bool:
    if hasattr(a, "same_as") and a.same_as(b):
        return True
    left, right = static_int(a), static_int(b)
    return left is not None and left == right


def _is_ordered_subset(read: list[Any], write: list[Any], shape: Any) -> bool:
    position = 0
    for extent, index in zip(shape, read, strict=True):
        if static_int(extent) == 1 and static_int(index) == 0:
            continue
        if not vars_of(index):
            return False
        while position < len(write) and not _equal(write[position], index):
            position += 1
        if position == len(write):
            return False
        position += 1
    return True


def is_pure_reduction(block: Block) -> bool:
    """Whether every load indexes with its reduction variables bare: no window, no stride."""
    reduced = block.reduction_vars
    for load in block.loads:
        for index in load.indices:
            used = [v for v in vars_of(index) if any(v.same_as(r) for r in reduced)]
            if used and not any(index.same_as(r) for r in reduced):
                return False
    return True


def writes_own_place(block: Block) -> bool:
    """Whether each spatial variable indexes each store bare and at most once."""
    for store in block.stores:
        seen: list[Any] = []
        for index in store.indices:
            if static_int(index) is not None:
                continue
            if not any(index.same_as(v) for v in block.spatial_vars):
                return False
            if any(index.same_as(v) for v in seen):
                return False
            seen.append(index)
    return True
