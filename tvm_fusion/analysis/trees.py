"""Two graph algorithms that the dataflow graph is built on, over plain integers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def peel_from_behind(successors: Mapping[int, Iterable[int]]) -> set[int]:
    """Nodes that are left when those without successors are removed again and again."""
    left = set(successors)
    ahead = {n: {m for m in later if m in left} for n, later in successors.items()}
    behind: dict[int, list[int]] = {n: [] for n in left}
    for n, later in ahead.items():
        for m in later:
            behind[m].append(n)
    ready = [n for n, later in ahead.items() if not later]
    while ready:
        node = ready.pop()
        left.discard(node)
        for n in behind[node]:
            ahead[n].discard(node)
            if not ahead[n]:
                ready.append(n)
    return left


class AncestorTree:
    """A growing tree that answers common-ancestor queries in logarithmic time.

    Jump pointers as in Myers, "An applicative random-access stack" (1983): every node knows its
    parent and one ancestor further up.
    """

    def __init__(self, size: int) -> None:
        self.root = size
        self.parent = [size] * (size + 1)
        self._jump = [size] * (size + 1)
        self._depth = [0] * (size + 1)

    def add(self, node: int, parent: int) -> None:
        far = self._jump[parent]
        equal = (
            self._depth[parent] - self._depth[far]
            == self._depth[far] - self._depth[self._jump[far]]
        )
        self.parent[node] = parent
        self._jump[node] = self._jump[far] if equal else parent
        self._depth[node] = self._depth[parent] + 1

    def common_ancestor(self, a: int, b: int) -> int:
        if self._depth[a] < self._depth[b]:
            a, b = b, a
        while self._depth[a] > self._depth[b]:
            far = self._jump[a]
            a = far if self._depth[far] >= self._depth[b] else self.parent[a]
        while a != b:
            if self._jump[a] != self._jump[b]:
                a, b = self._jump[a], self._jump[b]
            else:
                a, b = self.parent[a], self.parent[b]
        return a
