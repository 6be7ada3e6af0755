"""Cuts the axes of nests and tensors into digits and unites those that are walked alike."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Hashable, Iterable

from ..analysis.extents import ONE, Extent
from ..analysis.index import Index, Term
from ..analysis.nests import Nests, TensorAccess


class Unification:
    """Cuts axes into digits and unites them. Spaces are axes of nests and of tensors."""

    def __init__(self, group: Nests) -> None:
        self.group = group
        self.space: dict[Hashable, int] = {}
        self.extent: list[Extent] = []
        self.breaks: list[set[Extent]] = []
        self.links: list[list[tuple[int, int, Term]]] = []
        self.inputs = set(group.inputs)
        for n, nest in enumerate(group.nests):
            for a, axis in enumerate(nest.axes):
                self._add_space((True, n, a), axis.extent)
        for key, tensor in group.tensors.items():
            for a, extent in enumerate(tensor.shape):
                self._add_space((False, key, a), extent)

    def _add_space(self, key: Hashable, extent: Extent) -> None:
        self.space[key] = len(self.extent)
        self.extent.append(extent)
        self.breaks.append({ONE, extent})
        self.links.append([])

    def accesses(self) -> Iterable[tuple[int, TensorAccess]]:
        for n, nest in enumerate(self.group.nests):
            for access in (*nest.stores, *nest.loads):
                yield n, access

    def unite(self) -> None:
        for n, access in self.accesses():
            for a, index in enumerate(access.indices):
                target = self.space[(False, access.tensor, a)]
                if _is_clean(index, self.extent[target]):
                    for term in index.terms:
                        source = self.space[(True, n, term.var)]
                        link = (source, target, term)
                        self.links[source].append(link)
                        if target != source:
                            self.links[target].append(link)
                        self._cut(source, term.lower, term.upper)
                        self._cut(target, term.coefficient, term.span)
                    for term in index.selected:
                        self._cut(self.space[(True, n, term.var)], term.lower, term.upper)
        self._propagate()
        self._make_nodes()
        later = []
        for n, access in self.accesses():
            if access.tensor in self.inputs:
                later.append((n, access))
            else:
                self._unite_access(n, access, soft=False)
        for n, access in self.accesses():
            if access.tensor not in self.inputs:
                self._mark_opaque(n, access)
        for n, access in later:
            self._unite_access(n, access, soft=True)
        self._pair_outputs()

    def _cut(self, space: int, *places: Extent) -> None:
        for place in places:
            if place not in self.breaks[space] and place.divides(self.extent[space]):
                self.breaks[space].add(place)

    def _propagate(self) -> None:
        waiting = deque(range(len(self.extent)))
        queued = set(waiting)
        while waiting:
            space = waiting.popleft()
            queued.discard(space)
            for source, target, term in self.links[space]:
                for changed in self._carry(source, target, term):
                    if changed not in queued:
                        queued.add(changed)
                        waiting.append(changed)

    def _carry(self, source: int, target: int, term: Term) -> list[int]:
        """Carry the breaks of an axis over to the tensor that it indexes, and back."""
        changed = []
        for place in list(self.breaks[source]):
            if term.lower.divides(place) and place.divides(term.upper):
                there = term.coefficient * (place // term.lower)
                if there not in self.breaks[target] and there.divides(self.extent[target]):
                    self.breaks[target].add(there)
                    changed.append(target)
        for place in list(self.breaks[target]):
            if term.coefficient.divides(place) and place.divides(term.span):
                here = term.lower * (place // term.coefficient)
                if here not in self.breaks[source]:
                    self.breaks[source].add(here)
                    changed.append(source)
        return changed

    def _make_nodes(self) -> None:
        self.node: dict[tuple[int, Extent, Extent], int] = {}
        self.node_extent: list[Extent] = []
        self.digits: list[list[tuple[Extent, Extent, int]]] = []
        self.parent: list[int] = []
        self.owners: list[dict[Hashable, int]] = []  # for each class: nest or tensor -> digits
        owner = {number: key[:2] for key, number in self.space.items()}  # type: ignore[index]
        for space, breaks in enumerate(self.breaks):
            chain = sorted(breaks, key=Extent.order)
            if not all(a.divides(b) for a, b in itertools.pairwise(chain)):
                chain = [ONE, self.extent[space]]  # factors that do not nest: one digit, alone
                self.links[space] = []
            digits = []
            for lower, upper in itertools.pairwise(chain):
                node = len(self.parent)
                self.parent.append(node)
                self.node[(space, lower, upper)] = node
                self.node_extent.append(upper // lower)
                self.owners.append({owner[space]: 1})
                digits.append((lower, upper, node))
            self.digits.append(digits)
        self.opaque_nodes: dict[int, str] = {}

    def find(self, node: int) -> int:
        while self.parent[node] != node:
            self.parent[node] = self.parent[self.parent[node]]
            node = self.parent[node]
        return node

    def _unite_access(self, n: int, access: TensorAccess, soft: bool) -> None:
        for a, index in enumerate(access.indices):
            target = self.space[(False, access.tensor, a)]
            if not _is_clean(index, self.extent[target]):
                continue
            for term in index.terms:
                source = self.space[(True, n, term.var)]
                for lower, upper, node in self.digits[source]:
                    if not (term.lower.divides(lower) and upper.divides(term.upper)):
                        continue
                    place = term.coefficient * (lower // term.lower)
                    there = (target, place, place * (upper // lower))
                    if there in self.node:
                        self._union(node, self.node[there], self.group.nests[n].name, soft)

    def _pair_outputs(self) -> None:
        """Unite axes of different outputs that nothing ties together but their equal extents.

        Which row of one result goes with which row of another is free to choose then.
        """
        walks = {tensor: self._nodes_of(tensor) for tensor in self.group.outputs}
        reduced = self._reduced()
        free = {
            tensor: [n for n in nodes if n not in reduced and n not in self.opaque_nodes]
            for tensor, nodes in walks.items()
        }
        first = max(free, key=lambda t: len(free[t]), default=None)
        for tensor in self.group.outputs:
            if tensor == first:
                continue
            here = {self.find(n) for n in walks[tensor]}
            start = 0
            for node in free[first]:
                if self.find(node) in here:
                    continue
                for place in range(start, len(free[tensor])):
                    other = free[tensor][place]
                    if self.node_extent[other] == self.node_extent[node]:
                        self._union(node, other, "", soft=True)
                        start = place + 1
                        break

    def _nodes_of(self, tensor: Hashable) -> list[int]:
        """Classes of a tensor's digits, outermost first."""
        axes = range(len(self.group.tensors[tensor].shape))
        spaces = [self.space[(False, tensor, a)] for a in axes]
        return [self.find(n) for s in spaces for _, _, n in reversed(self.digits[s])]

    def _reduced(self) -> set[int]:
        """Classes that some nest reduces over."""
        return {
            self.find(node)
            for n, nest in enumerate(self.group.nests)
            for a, axis in enumerate(nest.axes)
            if axis.reduced
            for _, _, node in self.digits[self.space[(True, n, a)]]
        }

    def _union(self, a: int, b: int, name: str, soft: bool) -> None:
        a, b = self.find(a), self.find(b)
        if a == b:
            return
        small, large = sorted((a, b), key=lambda r: len(self.owners[r]))
        clash = any(key in self.owners[large] for key in self.owners[small])
        if clash:  # united, some nest or tensor would walk two of its axes as one
            if not soft:
                self.opaque_nodes.setdefault(small, name)
                self.opaque_nodes.setdefault(large, name)
            return
        self.parent[small] = large
        for key, count in self.owners[small].items():
            self.owners[large][key] = self.owners[large].get(key, 0) + count
        self.owners[small] = {}
        for root in (small, large):
            if root in self.opaque_nodes:
                self.opaque_nodes.setdefault(large, self.opaque_nodes[root])

    def _mark_opaque(self, n: int, access: TensorAccess) -> None:
        """Digits of an intermediate that a nest does not walk one by one."""
        name = self.group.nests[n].name
        for a, index in enumerate(access.indices):
            target = self.space[(False, access.tensor, a)]
            clean = _is_clean(index, self.extent[target])
            walked = set()
            if clean:
                for term in index.terms:
                    source = self.space[(True, n, term.var)]
                    for lower, upper, node in self.digits[source]:
                        if term.lower.divides(lower) and upper.divides(term.upper):
                            walked.add(self.find(node))
                for term in index.selected:
                    for lower, _, node in self.digits[self.space[(True, n, term.var)]]:
                        if term.lower.divides(lower):
                            self.opaque_nodes.setdefault(self.find(node), name)
            else:
                for var in index.variables:
                    for _, _, node in self.digits[self.space[(True, n, var)]]:
                        self.opaque_nodes.setdefault(self.find(node), name)
            for _, _, node in self.digits[target]:
                if self.find(node) not in walked:
                    self.opaque_nodes.setdefault(self.find(node), name)


def _is_clean(index: Index, extent: Extent) -> bool:
    """Whether the terms of an index are digits of the axis, and the rest of it constant."""
    if index.opaque or index.base < 0:
        return False
    last = ONE
    for term in index.terms:
        if not last.divides(term.coefficient):
            return False
        last = term.span
    if not last.divides(extent) and not (index.base == 0 and last.at_most(extent)):
        return False
    if not index.base:
        return True
    if last.symbols or index.base % last.number:
        return False
    return extent.static is None or index.base + last.number <= extent.number
