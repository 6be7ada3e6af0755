"""The dataflow graph that fusion policies work on: ops, edges, dominators, convexity."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ..errors import GraphError
from .nests import Nests
from .op_kind import DEFAULT_PATTERN, ClassicKind, FusePattern, OpKind
from .trees import AncestorTree, peel_from_behind


@dataclass(frozen=True)
class Op:
    """One op of a dataflow graph.

    Parameters
    ----------
    name : str
        Unique in the graph: the variable that the op binds.
    kind : OpKind
        What it does.
    function : str
        The PrimFunc or operator that it calls.
    origin : str
        The PrimFunc that this one was specialised or split from; empty for most.
    output_bytes : int
        Bytes of all its outputs; 0 where symbolic extents leave it unknown.
    shared_bytes : int
        Bytes of shared memory that one thread block stages to reduce; 0 for other kinds.
    is_reshape : bool
        The same elements in the same order, in another shape.
    keeps_axes : bool
        A reshape that only adds or drops axes of extent 1.
    pinned : bool
        Its result must be a tensor of its own, since somebody outside refers to it; a reshape
        that is not pinned becomes a view and costs no kernel.
    pattern : FusePattern or None
        How it takes part in post-dominator fusion; None: what its kind says.
    external_inputs : tuple of str
        Tensors it reads that no op of the graph makes, in order, each once.
    num_outputs : int
        Tensors it makes.
    dead_outputs : int
        How many of those nobody reads.
    blocked : str or None
        Why it may never be fused (owned by another pass, in-place, ...), or None.
    reads : tuple of hashable
        Tensors that it reads, whoever makes them, each once: ``("out", name, k)`` is result ``k``
        of the op of that name, ``("in", name)`` a variable or constant from outside.
    leaving : tuple of hashable
        Those of its results that leave the graph.
    nests : Nests or None
        Its loop nests over these tensors; None where they cannot be read.
    unreadable : str
        Why they cannot be.
    repeats : str
        Name of an earlier op that calls the same function with the same tensors; empty for most.
    """

    name: str
    kind: OpKind
    function: str = ""
    origin: str = ""
    output_bytes: int = 0
    shared_bytes: int = 0
    is_reshape: bool = False
    keeps_axes: bool = False
    pinned: bool = False
    pattern: FusePattern | None = None
    external_inputs: tuple[str, ...] = ()
    num_outputs: int = 1
    dead_outputs: int = 0
    blocked: str | None = None
    reads: tuple[Hashable, ...] = ()
    leaving: tuple[Hashable, ...] = ()
    nests: Nests | None = field(default=None, compare=False, repr=False)
    unreadable: str = ""
    repeats: str = ""

    @property
    def is_view(self) -> bool:
        """Whether it costs no kernel when it is left outside of all groups."""
        return self.is_reshape and not self.pinned

    @property
    def classic(self) -> ClassicKind:
        """What the classic rule sees in this op."""
        return ClassicKind.BARRIER if self.blocked else self.kind.classic(self.is_reshape)

    @property
    def fuse_pattern(self) -> FusePattern:
        """Its place on the ladder of fusion patterns."""
        if self.blocked:
            return FusePattern.OPAQUE
        return DEFAULT_PATTERN[self.kind] if self.pattern is None else self.pattern


class DataflowGraph:
    """Ops and the values that flow between them.

    Parameters
    ----------
    ops : sequence of Op
        In any order; ops are referred to by their index in it.
    edges : iterable of (int, int)
        (producer, consumer), once for each time the consumer reads the producer:
        ``add(x, x)`` has two.
    outputs : iterable of int
        Ops whose value leaves the graph.
    order : iterable of (int, int)
        (earlier, later) pairs that must keep their order without a value flowing.

    Raises
    ------
    GraphError
        Duplicate names, an edge to an op that is not there, or a cycle.

    Examples
    --------
    >>> graph = DataflowGraph.build(
    ...     {"exp": OpKind.ELEMENTWISE, "sum": OpKind.REDUCTION}, [("exp", "sum")], ["sum"])
    >>> [op.name for op in graph.consumers_of("exp")]
    ['sum']
    """

    def __init__(
        self,
        ops: Sequence[Op],
        edges: Iterable[tuple[int, int]],
        outputs: Iterable[int] = (),
        order: Iterable[tuple[int, int]] = (),
    ) -> None:
        self.ops = tuple(ops)
        self.index = {op.name: i for i, op in enumerate(self.ops)}
        if len(self.index) != len(self.ops):
            names = [op.name for op in self.ops]
            twice = sorted({n for n in names if names.count(n) > 1})
            raise GraphError(f"ops named twice: {', '.join(twice)}: give each op its own name")
        self._producers: list[list[int]] = [[] for _ in self.ops]
        self._consumers: list[list[int]] = [[] for _ in self.ops]
        self._successors: list[list[int]] = [[] for _ in self.ops]
        for producer, consumer in edges:
            self._check(producer, consumer)
            self._producers[consumer].append(producer)
            self._consumers[producer].append(consumer)
            self._successors[producer].append(consumer)
        self._order = tuple(order)
        for earlier, later in self._order:
            self._check(earlier, later)
            self._successors[earlier].append(later)
        self.outputs = frozenset(outputs)
        for output in self.outputs:
            self._check(output, output)
        self.topological_order: tuple[int, ...] = self._sort()

    @staticmethod
    def build(
        ops: Mapping[str, OpKind] | Sequence[Op],
        edges: Iterable[tuple[str, str]],
        outputs: Iterable[str] = (),
    ) -> DataflowGraph:
        """Make a graph by hand, with ops referred to by name.

        Parameters
        ----------
        ops : mapping of name to OpKind, or sequence of Op
            The ops; a mapping gives them nothing but a kind.
        edges : iterable of (str, str)
            (producer, consumer) names, with repetition.
        outputs : iterable of str
            Names of the ops whose value leaves the graph.

        Raises
        ------
        GraphError
            An edge or output names an unknown op, a name is used twice, or there is a cycle.
        """
        made = (
            [Op(name, kind, function=name) for name, kind in ops.items()]
            if isinstance(ops, Mapping)
            else list(ops)
        )
        index = {op.name: i for i, op in enumerate(made)}

        def find(name: str) -> int:
            if name not in index:
                known = ", ".join(index) or "none"
                raise GraphError(f"no op is named {name!r}: the graph has {known}")
            return index[name]

        return DataflowGraph(
            made, [(find(a), find(b)) for a, b in edges], [find(name) for name in outputs]
        )

    def with_ops(self, ops: Sequence[Op]) -> DataflowGraph:
        """The same graph over other descriptions of the same ops, in the same order."""
        edges = [(p, c) for p, readers in enumerate(self._consumers) for c in readers]
        return DataflowGraph(ops, edges, self.outputs, self._order)

    def __len__(self) -> int:
        return len(self.ops)

    @property
    def has_order(self) -> bool:
        """Whether some ops must keep an order that no value gives them."""
        return bool(self._order)

    def producers(self, op: int) -> Sequence[int]:
        """Ops that make what ``op`` reads, once for each read."""
        return self._producers[op]

    def consumers(self, op: int) -> Sequence[int]:
        """Ops that read what ``op`` makes, once for each read."""
        return self._consumers[op]

    def successors(self, op: int) -> Sequence[int]:
        """Ops that must run after ``op``: those that read what it makes, or keep an order."""
        return self._successors[op]

    @cached_property
    def readers(self) -> Mapping[Hashable, tuple[int, ...]]:
        """For each tensor the ops that read it, each once."""
        found: dict[Hashable, list[int]] = {}
        for i, op in enumerate(self.ops):
            for tensor in op.reads:
                found.setdefault(tensor, []).append(i)
        return {tensor: tuple(readers) for tensor, readers in found.items()}

    def results_read_outside(self, members: Iterable[int]) -> set[Hashable]:
        """Tensors made by ``members`` that other ops read or that leave the graph."""
        inside = set(members)
        found: set[Hashable] = set()
        for op in inside:
            nests = self.ops[op].nests
            found.update(self.ops[op].leaving)
            for tensor in nests.outputs if nests else ():
                if any(reader not in inside for reader in self.readers.get(tensor, ())):
                    found.add(tensor)
        return found

    def names(self, ops: Iterable[int]) -> tuple[str, ...]:
        """Names of some ops."""
        return tuple(self.ops[op].name for op in ops)

    def consumers_of(self, name: str) -> list[Op]:
        """The ops that read the op called ``name``, each once."""
        return [self.ops[i] for i in dict.fromkeys(self._consumers[self.index[name]])]

    def producers_of(self, name: str) -> list[Op]:
        """The ops whose results the op called ``name`` reads, each once."""
        return [self.ops[i] for i in dict.fromkeys(self._producers[self.index[name]])]

    def edges(self) -> list[tuple[int, int]]:
        """Every distinct (producer, consumer), in order of the producer, then the consumer."""
        return [
            (producer, consumer)
            for producer in range(len(self.ops))
            for consumer in dict.fromkeys(self._consumers[producer])
        ]

    @cached_property
    def position(self) -> tuple[int, ...]:
        """For each op its place in the topological order."""
        place = [0] * len(self.ops)
        for i, op in enumerate(self.topological_order):
            place[op] = i
        return tuple(place)

    @cached_property
    def post_dominators(self) -> tuple[int | None, ...]:
        """For each op the nearest op that every path out of it goes through, or None.

        Least common ancestors in reverse topological order; an acyclic graph needs one pass
        (Cooper, Harvey, Kennedy, "A Simple, Fast Dominance Algorithm", 2001).
        """
        return self._dominator_tree(reversed(self.topological_order), self._consumers, self.outputs)

    @cached_property
    def dominators(self) -> tuple[int | None, ...]:
        """For each op the nearest op that every path into it goes through, or None.

        An op that also reads a tensor from outside the graph has no dominator.
        """
        entries = frozenset(
            i for i, op in enumerate(self.ops) if op.external_inputs or not self._producers[i]
        )
        return self._dominator_tree(self.topological_order, self._producers, entries)

    def is_convex(self, members: Iterable[int]) -> bool:
        """Whether no path leaves ``members`` and comes back.

        Parameters
        ----------
        members : iterable of int
            Indices of ops.
        """
        return self.detour(members) is None

    def detour(self, members: Iterable[int]) -> tuple[int, int] | None:
        """Where a path leaves ``members`` that comes back; None where there is none.

        Parameters
        ----------
        members : iterable of int
            Indices of ops.

        Returns
        -------
        inside, outside : int
            An op of ``members``, and one outside that needs it and that ``members`` need.
        """
        inside = set(members)
        if not inside:
            return None
        last = max(self.position[op] for op in inside)
        stack = [
            (op, later)
            for op in sorted(inside)
            for later in self._successors[op]
            if later not in inside
        ]
        seen = set()
        while stack:
            origin, op = stack.pop()
            if op in seen or self.position[op] > last:
                continue
            seen.add(op)
            for later in self._successors[op]:
                if later in inside:
                    return origin, op
                stack.append((origin, later))
        return None

    def components(self, members: Iterable[int]) -> list[tuple[int, ...]]:
        """``members`` divided into sets that values connect, each in topological order."""
        order = sorted(set(members), key=self.position.__getitem__)
        inside = set(order)
        parts, seen = [], set()
        for start in order:
            if start in seen:
                continue
            stack, part = [start], []
            seen.add(start)
            while stack:
                op = stack.pop()
                part.append(op)
                for near in (*self._consumers[op], *self._producers[op]):
                    if near in inside and near not in seen:
                        seen.add(near)
                        stack.append(near)
            parts.append(tuple(sorted(part, key=self.position.__getitem__)))
        return parts

    def cyclic_groups(self, groups: Sequence[Sequence[int]]) -> set[int]:
        """Indices of the groups that lie on, or between, cycles when each becomes one node.

        Empty: all groups can be put into an order.
        """
        node = list(range(len(self.ops)))
        for g, members in enumerate(groups):
            for op in members:
                node[op] = len(self.ops) + g
        waiting: dict[int, set[int]] = {}
        successors: dict[int, set[int]] = {}
        for op, later in enumerate(self._successors):
            waiting.setdefault(node[op], set())
            for other in later:
                if node[op] != node[other]:
                    successors.setdefault(node[op], set()).add(node[other])
                    waiting.setdefault(node[other], set()).add(node[op])
        ready = [n for n, before in waiting.items() if not before]
        done = 0
        while ready:
            current = ready.pop()
            done += 1
            for other in successors.get(current, ()):
                waiting[other].discard(current)
                if not waiting[other]:
                    ready.append(other)
        if done == len(waiting):
            return set()
        left = {n: successors.get(n, set()) for n, before in waiting.items() if before}
        return {n - len(self.ops) for n in peel_from_behind(left) if n >= len(self.ops)}

    def _check(self, *ops: int) -> None:
        for op in ops:
            if not 0 <= op < len(self.ops):
                raise GraphError(f"an edge refers to op {op}: the graph has {len(self.ops)} ops")

    def _sort(self) -> tuple[int, ...]:
        waiting = [0] * len(self.ops)
        for later in self._successors:
            for op in later:
                waiting[op] += 1
        if all(a < b for a in range(len(self.ops)) for b in self._successors[a]):
            return tuple(range(len(self.ops)))
        ready = [i for i in reversed(range(len(self.ops))) if not waiting[i]]
        order = []
        while ready:
            op = ready.pop()
            order.append(op)
            for reader in self._successors[op]:
                waiting[reader] -= 1
                if not waiting[reader]:
                    ready.append(reader)
        if len(order) != len(self.ops):
            after = {i: self._successors[i] for i in range(len(self.ops)) if waiting[i] > 0}
            stuck = [self.ops[i].name for i in sorted(peel_from_behind(after))]
            raise GraphError(f"the graph has a cycle through {', '.join(stuck)}")
        return tuple(order)

    def _dominator_tree(
        self,
        order: Iterable[int],
        towards_root: Sequence[Sequence[int]],
        roots: frozenset[int],
    ) -> tuple[int | None, ...]:
        tree = AncestorTree(len(self.ops))
        for op in order:
            if op in roots or not towards_root[op]:
                tree.add(op, tree.root)
                continue
            common = towards_root[op][0]
            for other in towards_root[op][1:]:
                common = tree.common_ancestor(common, other)
            tree.add(op, common)
        return tuple(None if p == tree.root else p for p in tree.parent[:-1])
