"""Fusion to post-dominators: all paths from an op meet again inside of its group.

The first two phases are the algorithm of TVM's FuseOps (``relax/transform/fuse_ops.cc`` and
``graph_partitioner.cc``, after Chen et al., "TVM", OSDI 2018), so that what stock fuses is proposed
here; what does not come out as one kernel is cut later. The third joins neighbouring groups of
which one is read by the other only: an elementwise group behind a contraction across a reshape, or
elementwise groups and reductions. A join beyond stock is made only where the check says that one
kernel comes out.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..analysis import DataflowGraph, FusePattern, OpKind
from ..device import Device
from ..limits import Limits
from .base import (
    Group,
    GroupCheck,
    Partition,
    Refusal,
    decide_edges,
    decide_siblings,
    register_policy,
    siblings_apart,
)
from .budget import check_model, count_refusal
from .reasons import (
    Barrier,
    Blocked,
    Cyclic,
    KindsDoNotMatch,
    PathBlocked,
    Reason,
    SeveralReaders,
    TooLargeToTry,
    TwoAnchors,
    View,
)
from .union import GrowingGroups

#: Most ops of a group that a join beyond stock makes: trying one takes time that grows with it.
_MAX_JOINED = 64


@register_policy("dominator")
class Dominator:
    """Post-dominator fusion.

    Parameters
    ----------
    shared_memory_model : str
        As for :class:`tvm_fusion.policy.SingleChain`.
    """

    name = "dominator"

    def __init__(self, shared_memory_model: str = "thread_block") -> None:
        self.shared_memory_model = check_model(shared_memory_model)

    def partition(
        self,
        graph: DataflowGraph,
        limits: Limits,
        device: Device,
        check: GroupCheck | None = None,
    ) -> Partition:
        """Form groups. See :class:`tvm_fusion.Policy`."""
        groups = GrowingGroups(graph, limits, device, self.shared_memory_model)
        return _Run(graph, groups, check).partition()


def seeds(
    graph: DataflowGraph, groups: GrowingGroups, check: GroupCheck | None
) -> tuple[list[Group], dict[int, Refusal]]:
    """Groups of the first two phases and of the joins with a contraction.

    Parameters
    ----------
    graph : DataflowGraph
        The ops.
    groups : GrowingGroups
        The partition into single ops; it is left as the groups have it.
    check : callable or None
        As for :class:`tvm_fusion.Policy`; asked for joins only.

    Returns
    -------
    groups : list of Group
        Without the reshapes at their rim.
    refusals : dict of int to Refusal
        For ops that were not fused with their readers, why.
    """
    run = _Run(graph, groups, check)
    run.fuse_to_post_dominators()
    run.join_readers(contractions_only=True)
    return run.groups_formed(), run.refusals


class _Run:
    """One run of the algorithm over one graph."""

    def __init__(
        self, graph: DataflowGraph, groups: GrowingGroups, check: GroupCheck | None
    ) -> None:
        self.graph = graph
        self.groups = groups
        self.check = check
        self.refusals: dict[int, Refusal] = {}
        given = (groups.limits.max_depth, groups.limits.max_group_size)
        self.most_ops = min((n for n in given if n is not None), default=len(graph))
        self.highest_on_path = self._highest_on_paths()

    def partition(self) -> Partition:
        self.fuse_to_post_dominators()
        self.join_readers()
        groups = self.groups_formed()
        return Partition(
            tuple(groups),
            decide_edges(self.graph, groups, self._edge_refusal),
            decide_siblings(self.graph, groups, siblings_apart(self.graph, self._op_refusal)),
        )

    def fuse_to_post_dominators(self) -> None:
        for phase in (0, 1):
            for op in self.graph.topological_order:
                self._fuse_to_post_dominator(op, phase)

    def join_readers(self, contractions_only: bool = False) -> None:
        for op in reversed(self.graph.topological_order):
            self._join_reader(op, contractions_only)

    def _highest_on_paths(self) -> list[int]:
        """For each op the one of highest pattern on the way to its post-dominator, included."""
        graph, post = self.graph, self.graph.post_dominators
        result = list(range(len(graph)))
        for op in reversed(graph.topological_order):
            meet = post[op]
            if meet is None:
                continue
            seen: set[int] = {meet}
            found = [meet]
            for step in graph.consumers(op):
                while step not in seen:
                    seen.add(step)
                    found += [step, result[step]]
                    following = post[step]
                    step = meet if following is None else following
            result[op] = max(found, key=lambda other: graph.ops[other].fuse_pattern)
        return result

    # -- phases 0 and 1: as stock does -----------------------------------------------------

    def _fuse_to_post_dominator(self, op: int, phase: int) -> None:
        sink = self.graph.post_dominators[op]
        pattern = self.groups.pattern[op]
        if sink is None or pattern is FusePattern.OPAQUE or self.groups.same(op, sink):
            return
        edge = self.graph.ops[self.highest_on_path[op]].fuse_pattern
        if pattern is FusePattern.ANCHOR:
            if phase == 0 and edge is FusePattern.ELEMENTWISE:
                self._fuse_path(op, sink, FusePattern.BROADCAST, FusePattern.BROADCAST)
        elif pattern <= FusePattern.BROADCAST:
            if edge <= FusePattern.REDUCTION:
                self._fuse_path(op, sink, FusePattern.INJECTIVE, FusePattern.ANCHOR)
        elif pattern is FusePattern.INJECTIVE and phase == 1:
            self._fuse_path(op, sink, FusePattern.INJECTIVE, FusePattern.INJECTIVE)

    def _fuse_path(self, op: int, sink: int, inner: FusePattern, last: FusePattern) -> None:
        """Fuse ``op`` and all on its paths into ``sink`` if none has a higher pattern."""
        path = self._path(op, sink, self.most_ops)
        if path is None:
            self.refusals[op] = self._too_many_ops(op, sink)
            return
        for step in path:
            if self.groups.pattern[self.groups.find(step)] > (last if step == sink else inner):
                self.refusals[op] = Refusal(PathBlocked(*self.graph.names((op, sink, step))))
                return
        reason = self._order_refusal([op, *path]) or self.groups.merge([op, *path], sink)
        if reason is not None:
            self.refusals[op] = Refusal(reason, self._union([op, *path]))

    def _order_refusal(self, ops: Sequence[int]) -> Reason | None:
        """Paths to a post-dominator are convex by themselves, but not across other orders.

        Whole groups are not walked here, which would take quadratic time: a group that cannot be
        put into an order is cut in the end.
        """
        if not self.graph.has_order or self.graph.is_convex(ops):
            return None
        return self._cyclic(ops)

    def _cyclic(self, ops: Sequence[int]) -> Reason:
        detour = self.graph.detour(ops)
        assert detour is not None, "the ops are not convex"
        return Cyclic(*self.graph.names(detour))

    def _path(self, op: int, sink: int, most: int) -> list[int] | None:
        """Ops on the paths from ``op`` to its post-dominator, ``sink`` included.

        None where they are more than ``most``.
        """
        seen, stack = {op}, [op]
        while stack:
            if len(seen) > most:
                return None
            for reader in self.graph.consumers(stack.pop()):
                if reader not in seen:
                    seen.add(reader)
                    if reader != sink:
                        stack.append(reader)
        seen.discard(op)
        return sorted(seen, key=self.graph.position.__getitem__)

    def _too_many_ops(self, op: int, sink: int) -> Refusal:
        """Which limit a path is too long for, and how long it is."""
        path = self._path(op, sink, len(self.graph))
        assert path is not None, "no path holds more ops than the graph"
        union = self._union([op, *path])
        reason = count_refusal(self.groups.limits, len(union), 0)
        assert reason is not None, "the path is longer than a limit allows"
        return Refusal(reason, union)

    def _union(self, ops: Sequence[int]) -> tuple[int, ...]:
        """All ops of the groups that some ops are in, in order."""
        roots = dict.fromkeys(map(self.groups.find, ops))
        members = [op for root in roots for op in self.groups.members[root]]
        return tuple(sorted(members, key=self.graph.position.__getitem__))

    # -- phase 2: joins beyond stock, each checked -----------------------------------------

    def _join_reader(self, op: int, contractions_only: bool) -> None:
        """Join the group of ``op`` to the one group that reads ``op``, where that may be."""
        readers = {self.groups.find(reader) for reader in self.graph.consumers(op)}
        if readers <= {self.groups.find(op)}:
            return
        places = len(readers) + (op in self.graph.outputs)
        if places > 1:
            several = SeveralReaders(self.graph.ops[op].name, places)
            self.refusals.setdefault(op, Refusal(several))
            return
        sink = readers.pop()
        first, second = self.groups.members[self.groups.find(op)], self.groups.members[sink]
        if contractions_only and not any(
            self.graph.ops[member].kind is OpKind.CONTRACTION for member in (*first, *second)
        ):
            return
        union = self._union([op, sink])
        if not _may_join(self.graph, union):
            return
        if len(union) > _MAX_JOINED:
            self.refusals.setdefault(op, Refusal(TooLargeToTry(len(union), _MAX_JOINED)))
            return
        if not self.graph.is_convex(union):
            self.refusals[op] = Refusal(self._cyclic(union), union)
            return
        reason = self.check(_trim_views(self.graph, union)) if self.check else None
        reason = reason or self.groups.merge([op], sink)
        if reason is not None:
            self.refusals[op] = Refusal(reason, union)

    # -- results ---------------------------------------------------------------------------

    def groups_formed(self) -> list[Group]:
        place = self.graph.position.__getitem__
        found = []
        for root in self.groups.roots():
            members = sorted(self.groups.members[root], key=place)
            kept = _trim_views(self.graph, members)
            if len(kept) > 1 or (kept and self._drops_outputs(kept[0])):
                shared = max(self.groups.shared_bytes(op) for op in kept)
                found.append(Group(kept, shared))
        return sorted(found, key=lambda group: place(group.ops[0]))

    def _drops_outputs(self, op: int) -> bool:
        node = self.graph.ops[op]
        return node.fuse_pattern is not FusePattern.OPAQUE and node.dead_outputs > 0

    def _op_refusal(self, op: int) -> Reason | None:
        """What forbids every pair with an op."""
        node = self.graph.ops[op]
        if node.blocked:
            return Blocked(node.name, node.blocked)
        if node.fuse_pattern is FusePattern.OPAQUE:
            return Barrier(node.name, node.kind.value)
        return None

    def _edge_refusal(self, producer: int, consumer: int, grouped: frozenset[int]) -> Refusal:
        """Why two ops are not in one group."""
        first, second = self.graph.ops[producer], self.graph.ops[consumer]
        reason = self._op_refusal(producer) or self._op_refusal(consumer)
        if reason is not None:
            return Refusal(reason)
        for op, node in ((consumer, second), (producer, first)):
            if node.is_view and op not in grouped:
                return Refusal(View(node.name))
        refusal = self.refusals.get(producer)
        if refusal is not None and not blocked_by(refusal.reason, second.name):
            return refusal
        sink = self.graph.post_dominators[producer]
        if sink is not None and self.highest_on_path[producer] not in (consumer, sink):
            blocker = self.graph.ops[self.highest_on_path[producer]]
            return Refusal(PathBlocked(first.name, self.graph.ops[sink].name, blocker.name))
        if min(first.fuse_pattern, second.fuse_pattern) > FusePattern.INJECTIVE:
            return Refusal(TwoAnchors(first.name, second.name))
        names = first.name, first.kind.value, second.name, second.kind.value
        return Refusal(KindsDoNotMatch(*names))


def blocked_by(reason: Reason, consumer: str) -> bool:
    """Whether a path is blocked by the consumer of a pair: no op between says why of that pair."""
    return isinstance(reason, PathBlocked) and reason.blocker == consumer != reason.sink


def _may_join(graph: DataflowGraph, members: Sequence[int]) -> bool:
    """Whether ops, in their order, may be one group by what they are.

    Either one contraction with elementwise ops behind it, and in front of it nothing but index
    maps, which cost nothing where the contraction reads its operands; or reductions with
    elementwise ops before, between and behind them. Index maps never move what the group itself
    computed, and behind a contraction a reshape only adds or drops axes of extent 1: where the
    tiles of a product overhang, TVM stores what lies outside to where a real reshape wraps it.
    """
    ops = [graph.ops[op] for op in members]
    if any(op.fuse_pattern is FusePattern.OPAQUE for op in ops):
        return False
    kinds = [op.kind for op in ops]
    if OpKind.ROW_NORM in kinds:
        return False
    contractions = kinds.count(OpKind.CONTRACTION)
    if contractions > 1 or bool(contractions) == (OpKind.REDUCTION in kinds):
        return False
    computed: set[int] = set()  # ops whose result depends on more than index maps of the group
    for op, node in zip(members, ops, strict=True):
        if not computed.isdisjoint(graph.producers(op)):
            computed.add(op)
            harmless = node.keeps_axes or (node.is_reshape and not contractions)
            if node.kind in _NO_FEED and not harmless:
                return False
        if node.kind is not OpKind.INJECTIVE:
            computed.add(op)
    return True


#: Kinds in front of which a group may only move elements: a contraction would compute anything
#: else once for each time it reads it, and index maps would hide what was computed.
_NO_FEED = (OpKind.CONTRACTION, OpKind.INJECTIVE)


def _trim_views(graph: DataflowGraph, members: Sequence[int]) -> tuple[int, ...]:
    """Leave out reshapes at the rim of a group: outside they are views and cost nothing."""
    inside = set(members)
    for order in (members, members[::-1]):
        for op in order:
            if not graph.ops[op].is_view:
                continue
            fed = any(p in inside for p in graph.producers(op))
            read = any(c in inside for c in graph.consumers(op))
            if not (fed and read):
                inside.discard(op)
    return tuple(op for op in members if op in inside)
