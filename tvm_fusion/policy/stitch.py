"""Fusion of whatever one kernel can be planned for: through reductions, to several outputs.

Groups start as those of TVM's algorithm (see :mod:`tvm_fusion.policy.dominator`) and grow by
merging a producer with a consumer, or two readers of one tensor, the pair that saves most memory
traffic first. A pair merges where one kernel can be planned for both and a roofline model says that
it takes less time than two. Contractions stay as TVM's algorithm leaves them.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from ..analysis import DataflowGraph, OpKind
from ..device import Device
from ..limits import Limits
from .base import (
    Group,
    GroupCheck,
    Partition,
    Refusal,
    Source,
    decide_edges,
    decide_siblings,
    parting,
    register_policy,
)
from .budget import count_refusal
from .contracted import ContractedGraph
from .dominator import blocked_by, seeds
from .neighbours import Neighbours
from .reasons import (
    BeforeContraction,
    BehindContraction,
    BesideContraction,
    Cyclic,
    MovedBeforeContraction,
    NoBenefit,
    PairReason,
    PathBlocked,
    Reason,
    Recompute,
    SeveralReaders,
    TwoContractions,
    View,
)
from .union import GrowingGroups
from .units import Unit, UnitPlanner, op_refusal

#: Minus the bytes saved, ops of both, where they stand, and the two nodes.
_Entry = tuple[int, int, int, int, int, int]

#: Reasons of post-dominator fusion, which say nothing of what stands before a contraction.
_OF_PATHS = (SeveralReaders, PathBlocked)

#: Kinds of work that needs whole rows.
_ROW_WORK = (OpKind.REDUCTION, OpKind.ROW_NORM)

#: A node of at least this many ops takes several equal neighbours at once.
_LARGE = 16


@register_policy("stitch")
class Stitch:
    """Fusion by planning: any convex group that one kernel can hold and that pays."""

    name = "stitch"

    def partition(
        self,
        graph: DataflowGraph,
        limits: Limits,
        device: Device,
        check: GroupCheck | None = None,
    ) -> Partition:
        """Form groups. See :class:`tvm_fusion.Policy`."""
        return _Run(graph, limits, device, check).partition()


class _Run:
    """One run over one graph. A *node* is an op or a set of ops that became one kernel."""

    def __init__(
        self,
        graph: DataflowGraph,
        limits: Limits,
        device: Device,
        check: GroupCheck | None,
    ) -> None:
        self.graph = graph
        self.limits = limits
        self.check = check
        self.planner = UnitPlanner(graph, limits, device)
        self.nodes = ContractedGraph(graph)
        self.near = Neighbours(graph, self.nodes)
        self.units: dict[int, Unit | Reason] = {}
        self.kept: dict[int, Group] = {}  # nodes that are no planned kernel: contractions
        self.dissolved: list[tuple[Group, Reason]] = []
        self.restored: dict[int, Reason] = {}  # kept nodes that could not be planned, and why
        self.parts: dict[int, tuple[int, ...]] = {}  # what a node was merged of
        self.failed: list[Refusal] = []  # nodes that were cut, since no kernel came out
        self.refusals: dict[tuple[int, int], Refusal] = {}
        self.fusions = 0
        self.queue: list[_Entry] = []

    def partition(self) -> Partition:
        growing = GrowingGroups(self.graph, self.limits, self.planner.device)
        formed, self.seed_refusals = seeds(self.graph, growing, self.check)
        for group in formed:
            self._plant(group)
        for node in list(self.nodes.members):
            self._propose(node)
        while self.queue:
            self._merge_next()
        for group, reason in self.dissolved:
            self._restore(group, reason)
        groups = self._groups()
        return Partition(
            tuple(groups),
            decide_edges(self.graph, groups, self._edge_refusal),
            decide_siblings(self.graph, groups, self._sibling_refusal),
        )

    # -- seeds ------------------------------------------------------------------------------

    def _plant(self, group: Group) -> None:
        """Make a seed a node if it stays as it is or can be planned."""
        if len(group.ops) == 1:
            return
        if self._contracts(group.ops):
            self._keep(group)
            return
        unit = self._seed_unit(group)
        if isinstance(unit, Unit) and not self.nodes.would_cycle(group.ops):
            self.units[self._merge_nodes(group.ops)] = unit
        elif isinstance(unit, Reason) and not isinstance(unit, Recompute):
            self.dissolved.append((group, unit))

    def _seed_unit(self, group: Group) -> Unit | Reason:
        for op in group.ops:
            reason = op_refusal(self.graph, op)
            if reason is not None:
                return reason
        first, last = (self.graph.ops[op].name for op in (group.ops[0], group.ops[-1]))
        return self.planner.plan(group.ops, first, last)

    def _keep(self, group: Group) -> int | None:
        nodes = {self.nodes.node_of[op] for op in group.ops}
        if self.nodes.would_cycle(nodes):
            return None
        node = self._merge_nodes(nodes)
        self.kept[node] = group
        return node

    def _restore(self, group: Group, reason: Reason) -> None:
        """Form a seed that could not be planned after all, if none of its ops found another place.

        The schedule rules may still make one kernel of it.
        """
        nodes = {self.nodes.node_of[op] for op in group.ops}
        inside = set(group.ops)
        apart = len(nodes) > 1 and all(set(self.nodes.members[n]) <= inside for n in nodes)
        if apart and self.check is not None and self.check(group.ops) is None:
            node = self._keep(group)
            if node is not None:
                self.restored[node] = reason

    def _merge_nodes(self, nodes: Iterable[int]) -> int:
        nodes = set(nodes)
        self.fusions += len(nodes) - 1
        return self.nodes.merge(nodes)

    def _contracts(self, ops: Iterable[int]) -> bool:
        return any(self.graph.ops[op].kind is OpKind.CONTRACTION for op in ops)

    # -- pairs ------------------------------------------------------------------------------

    def _propose(self, node: int) -> None:
        """Queue all pairs of a node, those that save the most bytes first."""
        if not self._may_merge(node):
            return
        for other in self.near.of(node):
            if not self._may_merge(other):
                continue
            first, second = sorted((node, other), key=self._place)
            saved = self.near.shared_bytes(first, second)
            size = len(self.nodes.members[first]) + len(self.nodes.members[second])
            entry = (-saved, size, self._place(first), self._place(second), first, second)
            heapq.heappush(self.queue, entry)

    def _place(self, node: int) -> int:
        return self.graph.position[self.nodes.members[node][0]]

    def _may_merge(self, node: int) -> bool:
        """Whether a node merges with others at all: no view, no contraction, nothing unreadable."""
        ops = self.nodes.members[node]
        if isinstance(self.units.get(node), Unit):
            return True
        if self.near.is_loose_view(ops[0]) or node in self.kept or self._contracts(ops):
            return False
        return op_refusal(self.graph, ops[0]) is None

    def _merge_next(self) -> None:
        """Merge the next pair of the queue, or note why not.

        Where a large node has several pairs that save as much, all are merged at once if they can
        be: planning each in turn would take quadratic time.
        """
        pair = self._pop()
        star = [pair] if pair else []
        while pair and self.queue and self._same_star(star, self.queue[0]):
            following = self._pop()
            star += [following] if following else []
        together = {n for two in star if not self.nodes.would_cycle(two) for n in two}
        if len(together) > 2 and self._try_merge(together) is None:
            return
        for first, second in star:
            if first in self.nodes.members and second in self.nodes.members:
                refusal = self._try_merge((first, second))
                if refusal is not None:
                    self.refusals[first, second] = refusal

    def _pop(self) -> tuple[int, int] | None:
        *_, first, second = heapq.heappop(self.queue)
        alive = first in self.nodes.members and second in self.nodes.members
        return (first, second) if alive and (first, second) not in self.refusals else None

    def _same_star(self, star: Sequence[tuple[int, int]], entry: _Entry) -> bool:
        """Whether a pair saves as much as those of ``star``, around the same large node."""
        centre = max(star[0], key=lambda node: len(self.nodes.members[node]))
        if len(self.nodes.members[centre]) < _LARGE or centre not in entry[-2:]:
            return False
        return -entry[0] == self.near.shared_bytes(*star[0])

    def _try_merge(self, merged: Collection[int]) -> Refusal | None:
        """Merge nodes and the reshapes between them, or say why not."""
        parts = tuple(sorted(merged, key=self._place))
        nodes = {*parts, *self.near.views_between(parts)}
        ops = sorted(
            (op for node in nodes for op in self.nodes.members[node]),
            key=self.graph.position.__getitem__,
        )
        union = self._union(parts, nodes, tuple(ops))
        if isinstance(union, Refusal):
            return union
        node = self._merge_nodes(nodes)
        self.units[node], self.parts[node] = union, parts
        self._propose(node)
        return None

    def _union(
        self, parts: Sequence[int], nodes: Collection[int], ops: tuple[int, ...]
    ) -> Unit | Refusal:
        """The kernel of all ``ops``, or why ``parts`` are better off without it."""
        first, second = self._name(parts[0]), self._name(parts[-1])
        reason = count_refusal(self.limits, len(ops), self.fusions + len(nodes) - 1)
        if reason is not None:
            return Refusal(reason, ops)
        if self.nodes.would_cycle(nodes):
            detour = self.graph.names(self.nodes.detour(nodes))
            return Refusal(Cyclic(*detour), ops)
        apart = 0.0
        for node in parts:
            unit = self._unit(node)
            if isinstance(unit, Reason):
                return Refusal(unit, self.nodes.members[node])
            apart += unit.seconds
        union = self.planner.plan(ops, first, second)
        if isinstance(union, Reason):
            return Refusal(union, ops)
        if union.seconds >= apart:
            apart_us, together_us = round(apart * 1e6, 2), round(union.seconds * 1e6, 2)
            reason = NoBenefit(first, second, apart_us, together_us, union.thread_blocks)
            return Refusal(reason, ops)
        return union

    def _name(self, node: int) -> str:
        return self.graph.ops[self.nodes.members[node][-1]].name

    def _unit(self, node: int) -> Unit | Reason:
        if node not in self.units:
            name = self._name(node)
            self.units[node] = self.planner.plan(self.nodes.members[node], name, name)
        return self.units[node]

    # -- results ----------------------------------------------------------------------------

    def _groups(self) -> list[Group]:
        found = [group for node in self.nodes.members for group in self._settled(node)]
        return sorted(found, key=lambda group: self.graph.position[group.ops[0]])

    def _settled(self, node: int) -> Iterator[Group]:
        """The group of a node; where it comes out as no kernel, those of what it was merged of."""
        unit = self.units.get(node)
        if node in self.kept:
            yield self.kept[node]
        elif isinstance(unit, Unit) and len(unit.ops) > 1:
            reason = self.check(unit.ops) if self.check and node in self.parts else None
            if reason is None:
                yield Group(unit.ops, unit.plan.shared_bytes)
                return
            self.failed.append(Refusal(reason, unit.ops))
            for part in self.parts[node]:
                yield from self._settled(part)
        elif self.graph.ops[node].dead_outputs and op_refusal(self.graph, node) is None:
            yield Group((node,))

    def _edge_refusal(self, producer: int, consumer: int, grouped: frozenset[int]) -> Refusal:
        """Why a producer and its consumer are not in one group."""
        for op in (producer, consumer):
            reason = op_refusal(self.graph, op)
            if reason is not None:
                return Refusal(reason)
        for op in (consumer, producer):
            if self.graph.ops[op].is_view and op not in grouped:
                return Refusal(View(self.graph.ops[op].name))
        if any(self._contracts(self._members(op)) for op in (producer, consumer)):
            return self._contraction_refusal(producer, consumer)
        refusal = self._node_pair_refusal(producer, consumer)
        assert refusal is not None, "every pair of neighbours was looked at"
        return refusal

    def _sibling_refusal(self, first: int, second: int, source: Source) -> Refusal | None:
        """Why two readers of one tensor are not in one group; None where nobody looked."""
        if self.near.is_trivial(source):
            return None
        reason = op_refusal(self.graph, first) or op_refusal(self.graph, second)
        if reason is None and any(self._contracts(self._members(op)) for op in (first, second)):
            a, b = self.graph.names((first, second))
            reason = BesideContraction(a, b, source[1])
        return self._node_pair_refusal(first, second) if reason is None else Refusal(reason)

    def _members(self, op: int) -> tuple[int, ...]:
        return self.nodes.members[self.nodes.node_of[op]]

    def _node_pair_refusal(self, first: int, second: int) -> Refusal | None:
        """What stopped the nodes of two ops from merging, as a reason of these two."""
        pair = sorted({self.nodes.node_of[op] for op in (first, second)}, key=self._place)
        if len(pair) == 1:
            return parting(self.failed, first, second)
        restored = [self.restored[node] for node in pair if node in self.restored]
        refusal = self.refusals.get((pair[0], pair[1]))
        if restored:
            refusal = Refusal(restored[0])
        if refusal is None or not isinstance(refusal.reason, PairReason):
            return refusal
        if refusal.reason.is_of_one:
            return refusal
        names = self.graph.names((first, second))
        reason = replace(refusal.reason, first=names[0], second=names[1])
        return Refusal(reason, refusal.ops)

    def _contraction_refusal(self, producer: int, consumer: int) -> Refusal:
        """Why the groups of two ops, one of them with a contraction, stay apart.

        Other readers hinder an elementwise op behind a contraction, and an index map before one.
        Were they not there, everything else would stay apart all the same.
        """
        behind, before = (self._contracts(self._members(op)) for op in (producer, consumer))
        rows = self.graph.ops[consumer].kind in _ROW_WORK
        computes = before and self._computes(producer)
        first, second = self.graph.names((producer, consumer))
        refusal = self.seed_refusals.get(producer)
        if refusal and not isinstance(refusal.reason, _OF_PATHS):
            return refusal
        if behind and before:
            return Refusal(TwoContractions(first, second))
        if computes:
            return Refusal(self._before_contraction(producer, consumer))
        if rows or not (refusal or before):
            kind = self.graph.ops[consumer].kind.value
            need = "whole rows" if rows else "another order"
            return Refusal(BehindContraction(first, second, kind, need))
        if refusal and not blocked_by(refusal.reason, second):
            return refusal
        places = len({self.nodes.node_of[op] for op in self.graph.consumers(producer)})
        return Refusal(SeveralReaders(first, places + (producer in self.graph.outputs)))

    def _computes(self, op: int) -> bool:
        """Whether an op, or what it reads within its node, does more than to move elements."""
        inside, stack, seen = set(self._members(op)), [op], {op}
        while stack:
            current = stack.pop()
            if self.graph.ops[current].kind is not OpKind.INJECTIVE:
                return True
            before = [p for p in self.graph.producers(current) if p in inside and p not in seen]
            seen.update(before)
            stack.extend(before)
        return False

    def _before_contraction(self, producer: int, consumer: int) -> Reason:
        """Why what a contraction reads is computed apart from it."""
        first, second = self.graph.names((producer, consumer))
        contracts = self.graph.ops[consumer].kind is OpKind.CONTRACTION
        reader = second if contracts else f"the contraction behind {second}"
        if self.graph.ops[producer].kind is OpKind.INJECTIVE:
            return MovedBeforeContraction(first, reader)
        return BeforeContraction(first, reader)
