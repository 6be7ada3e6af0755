"""Where to cut a group that did not come out as one kernel."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import accumulate

from ..analysis import DataflowGraph, FusePattern
from ..analysis.extents import product


def cut(graph: DataflowGraph, ops: Sequence[int]) -> list[tuple[int, ...]]:
    """Divide a group in two along its topological order, into connected parts.

    A prefix and a suffix of a topological order are convex, so the parts can be ordered. The cut
    is made behind the last op that needs a loop nest of its own, or in front of it where it is
    the last already; a group without such an op is halved.

    Parameters
    ----------
    graph : DataflowGraph
        The graph.
    ops : sequence of int
        At least two ops, in topological order.

    Returns
    -------
    list of tuple of int
        The parts, each connected through values.
    """
    anchors = [i for i, op in enumerate(ops) if graph.ops[op].fuse_pattern > FusePattern.INJECTIVE]
    if not anchors:
        place = len(ops) // 2
    elif anchors[-1] + 1 < len(ops):
        place = anchors[-1] + 1
    else:
        place = max(anchors[-1], 1)
    parts = [ops[:place], ops[place:]]
    return [piece for part in parts if part for piece in graph.components(part)]


def cheapest_cuts(graph: DataflowGraph, ops: Sequence[int]) -> list[list[tuple[int, ...]]]:
    """All divisions of a group in two along its topological order, the cheapest first.

    A cut costs the bytes of the tensors that pass it: those made before and read behind are written
    and read, those read on both sides are read once more. Among equal ones the cut nearest to the
    middle comes first.

    Parameters
    ----------
    graph : DataflowGraph
        The graph.
    ops : sequence of int
        At least two ops, in topological order, with readable loop nests.

    Returns
    -------
    list of list of tuple of int
        For each cut the parts, each connected through values or inputs.
    """
    place = {op: i for i, op in enumerate(ops)}
    first: dict[Hashable, int] = {}
    last: dict[Hashable, int] = {}
    made: set[Hashable] = set()
    sizes: dict[Hashable, int] = {}
    for i, op in enumerate(ops):
        nests = graph.ops[op].nests
        if nests is None:
            return []
        made.update(nests.outputs)
        for tensor in (*graph.ops[op].reads, *nests.outputs):
            first.setdefault(tensor, i)
            last[tensor] = i
            described = nests.tensors[tensor]
            sizes[tensor] = product(described.shape).estimate() * described.element_bytes
    leaving = {tensor for op in ops for tensor in graph.ops[op].leaving}
    change = [0] * (len(ops) + 1)
    for tensor, begin in first.items():
        leaves = tensor in leaving or any(
            reader not in place for reader in graph.readers.get(tensor, ())
        )
        cost = sizes[tensor] * (1 if tensor not in made or leaves else 2)
        change[begin + 1] += cost
        change[last[tensor] + 1] -= cost
    costs = list(accumulate(change))
    middle = len(ops) / 2
    order = sorted(range(1, len(ops)), key=lambda i: (costs[i], abs(i - middle)))
    return [_connected(graph, ops[:i]) + _connected(graph, ops[i:]) for i in order]


def _connected(graph: DataflowGraph, ops: Sequence[int]) -> list[tuple[int, ...]]:
    """The parts of some ops that pass values or read the same tensors."""
    part: dict[int, int] = {op: op for op in ops}

    def root(op: int) -> int:
        while part[op] != op:
            part[op] = part[part[op]]
            op = part[op]
        return op

    toucher: dict[Hashable, int] = {}
    for op in ops:
        nests = graph.ops[op].nests
        for tensor in (*graph.ops[op].reads, *(nests.outputs if nests else ())):
            part[root(op)] = root(toucher.setdefault(tensor, op))
    found: dict[int, list[int]] = {}
    for op in ops:
        found.setdefault(root(op), []).append(op)
    return [tuple(members) for members in found.values()]
