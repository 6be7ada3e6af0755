"""Where to cut a group that did not come out as one kernel."""

from __future__ import annotations

from collections.abc import Sequence

from ..analysis import DataflowGraph, FusePattern


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
