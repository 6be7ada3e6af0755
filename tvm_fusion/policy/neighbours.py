"""Which nodes of a contracted graph may merge: they pass a tensor or read the same one.

A pure reshape that is in no group is a *loose view*: it costs nothing, so what reads it reads the
tensor that it was made of.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

from ..analysis import DataflowGraph
from ..analysis.extents import product
from .base import NEAREST, Source
from .contracted import ContractedGraph

#: Tensors below this size tie no two readers together.
_TRIVIAL_BYTES = 128


class Neighbours:
    """The nodes that are near each other.

    Parameters
    ----------
    graph : DataflowGraph
        The ops.
    nodes : ContractedGraph
        The nodes that they have been merged to.
    """

    def __init__(self, graph: DataflowGraph, nodes: ContractedGraph) -> None:
        self.graph = graph
        self.nodes = nodes
        self._maker = {
            tensor: i
            for i, op in enumerate(graph.ops)
            if op.nests is not None
            for tensor in op.nests.outputs
        }

    def is_loose_view(self, op: int) -> bool:
        """Whether an op is a reshape that stands outside of all groups."""
        node = self.graph.ops[op]
        single = len(self.nodes.members[self.nodes.node_of[op]]) == 1
        return single and node.is_view and not node.blocked and node.nests is not None

    def of(self, node: int) -> list[int]:
        """Nodes that read what ``node`` makes, make what it reads, or read the same."""
        found: dict[int, None] = {}
        for op in self.nodes.members[node]:
            found.update(dict.fromkeys(self._readers(self.graph.consumers(op))))
        for tensor in self._roots_read(node):
            maker = self._maker.get(tensor)
            if maker is not None:
                found[self.nodes.node_of[maker]] = None
            if self.nbytes(tensor) >= _TRIVIAL_BYTES:
                found.update(dict.fromkeys(self._siblings(node, tensor, maker)))
        found.pop(node, None)
        return list(found)

    def shared_bytes(self, first: int, second: int) -> int:
        """Bytes of global memory that merging two nodes may save."""
        reads = [self._roots_read(node) for node in (first, second)]
        saved = sum(self.nbytes(tensor) for tensor in reads[0] if tensor in reads[1])
        for node, read in ((first, reads[1]), (second, reads[0])):
            made = [tensor for tensor in read if self._made_by(tensor) == node]
            saved += sum(2 * self.nbytes(tensor) for tensor in made)
        return saved

    def views_between(self, nodes: Iterable[int]) -> set[int]:
        """Loose views that a kernel of all ``nodes`` has to hold.

        Those through which one reads what another makes, and those without which it would not be
        seen that two read the same tensor.
        """
        chains: dict[Hashable, dict[Hashable, list[int]]] = {}
        inside = {op for node in nodes for op in self.nodes.members[node]}
        for op in inside:
            for tensor in self.graph.ops[op].reads:
                root, views = self._trace(tensor)
                chains.setdefault(root, {})[tensor] = views
        needed: set[int] = set()
        for root, views_of in chains.items():
            if self._maker.get(root) in inside or len(views_of) > 1:
                needed.update(view for views in views_of.values() for view in views)
        return needed

    def is_trivial(self, source: Source) -> bool:
        """Whether what an op makes, or a tensor from outside, is too small to tie its readers."""
        keys: list[Hashable] = [source]
        if source[0] == "out":
            nests = self.graph.ops[self.graph.index[source[1]]].nests
            keys = list(nests.outputs) if nests else []
        return all(self.nbytes(key) < _TRIVIAL_BYTES for key in keys)

    def nbytes(self, tensor: Hashable) -> int:
        """Bytes of a tensor, symbolic extents taken as 128."""
        for op in (self._maker.get(tensor), *self.graph.readers.get(tensor, ())):
            nests = None if op is None else self.graph.ops[op].nests
            if nests is not None:
                found = nests.tensors[tensor]
                return product(found.shape).estimate() * found.element_bytes
        return 0

    def _made_by(self, tensor: Hashable) -> int | None:
        """The node that makes a tensor, or None where it comes from outside."""
        maker = self._maker.get(tensor)
        return None if maker is None else self.nodes.node_of[maker]

    def _trace(self, tensor: Hashable) -> tuple[Hashable, list[int]]:
        """The tensor behind loose views, and these."""
        views: list[int] = []
        maker = self._maker.get(tensor)
        while maker is not None and self.is_loose_view(maker):
            views.append(maker)
            tensor = self.graph.ops[maker].reads[0]
            maker = self._maker.get(tensor)
        return tensor, views

    def _roots_read(self, node: int) -> dict[Hashable, None]:
        """Tensors from outside that a node reads, each behind its views."""
        roots = dict.fromkeys(
            self._trace(tensor)[0]
            for op in self.nodes.members[node]
            for tensor in self.graph.ops[op].reads
        )
        return {tensor: None for tensor in roots if self._made_by(tensor) != node}

    def _siblings(self, node: int, tensor: Hashable, maker: int | None) -> list[int]:
        """Nodes that read the same tensor, or other results of the op that made it."""
        first = self.graph.readers[tensor] if maker is None else self.graph.consumers(maker)
        place = {n: self.graph.position[self.nodes.members[n][0]] for n in self._readers(first)}
        order = sorted(place, key=place.__getitem__)
        here = order.index(node)
        return order[max(0, here - NEAREST) : here + NEAREST + 1]

    def _readers(self, ops: Iterable[int]) -> Iterator[int]:
        """Nodes of some ops, and of those that read them where they are loose views."""
        stack = list(dict.fromkeys(ops))
        while stack:
            op = stack.pop()
            if self.is_loose_view(op):
                stack.extend(dict.fromkeys(self.graph.consumers(op)))
            else:
                yield self.nodes.node_of[op]
