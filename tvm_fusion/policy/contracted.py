"""A graph whose nodes are merged one by one while it stays acyclic."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from ..analysis import DataflowGraph


class ContractedGraph:
    """The graph of ops with some of them merged into nodes, in an order that respects all edges.

    The order is repaired locally at each merge (after Pearce and Kelly, "A Dynamic Topological
    Sort Algorithm for Directed Acyclic Graphs", 2007), so that asking whether a merge would close
    a cycle walks only what lies between the nodes.

    Parameters
    ----------
    graph : DataflowGraph
        The ops; at first each is the node of the same number.
    """

    def __init__(self, graph: DataflowGraph) -> None:
        self._graph = graph
        self.node_of = list(range(len(graph)))
        self.members: dict[int, tuple[int, ...]] = {op: (op,) for op in range(len(graph))}
        self._position = graph.position
        self._rank = dict(enumerate(graph.position))
        self._at: dict[int, int] = {place: op for op, place in enumerate(graph.position)}
        self._later = {op: frozenset(graph.successors(op)) for op in range(len(graph))}
        self._next = len(graph)

    def would_cycle(self, nodes: Collection[int]) -> bool:
        """Whether some path leaves ``nodes`` and comes back."""
        return self._reached(set(nodes)) is None

    def detour(self, nodes: Collection[int]) -> tuple[int, int]:
        """Where a path leaves ``nodes`` that comes back: an op of theirs, and one outside.

        The op outside is read by ``nodes``, and needs the op inside, itself or through nodes.
        """
        inside = set(nodes)
        last = max(self._rank[node] for node in inside)
        origin: dict[int, int] = {}  # a node outside -> the op inside from which it was reached
        stack = [(op, self.node_of[later]) for op, later in self._leaving(inside)]
        while stack:
            op, node = stack.pop()
            if node in inside or node in origin or self._rank[node] > last:
                continue
            origin[node] = op
            for member in self.members[node]:
                for later in self._graph.successors(member):
                    if self.node_of[later] in inside:
                        return op, member
                    stack.append((op, self.node_of[later]))
        raise ValueError("no path leaves these nodes and comes back")

    def _leaving(self, nodes: set[int]) -> Iterator[tuple[int, int]]:
        """Edges from ops of some nodes to ops of others."""
        for node in nodes:
            for op in self.members[node]:
                for later in self._graph.successors(op):
                    if self.node_of[later] not in nodes:
                        yield op, later

    def merge(self, nodes: Iterable[int]) -> int:
        """Make one node of several, which must not close a cycle, and return its number."""
        merged = set(nodes)
        reached = self._reached(merged)
        if reached is None:
            raise ValueError("merging these nodes would close a cycle")
        ranks = sorted(self._rank[node] for node in merged)
        region = [r for r in range(ranks[0], ranks[-1] + 1) if r in self._at]
        between = [self._at[r] for r in region if self._at[r] not in merged]
        new = self._next
        self._next += 1
        order = [n for n in between if n not in reached]
        order += [new, *(n for n in between if n in reached)]
        for rank in region:
            del self._at[rank]
        for rank, node in zip(region, order, strict=False):
            self._at[rank], self._rank[node] = node, rank
        ops = [op for node in merged for op in self.members.pop(node)]
        self.members[new] = tuple(sorted(ops, key=self._position.__getitem__))
        for op in ops:
            self.node_of[op] = new
        later = frozenset().union(*(self._later.pop(node) for node in merged))
        self._later[new] = later - frozenset(ops)
        for node in merged:
            del self._rank[node]
        return new

    def _reached(self, nodes: set[int]) -> set[int] | None:
        """Nodes that paths from ``nodes`` reach among their ranks; None where one comes back."""
        last = max(self._rank[node] for node in nodes)
        stack = [self.node_of[op] for node in nodes for op in self._later[node]]
        stack = [node for node in stack if node not in nodes]
        found: set[int] = set()
        while stack:
            node = stack.pop()
            if node in nodes:
                return None
            if node in found or self._rank[node] > last:
                continue
            found.add(node)
            stack.extend(self.node_of[op] for op in self._later[node])
        return found
