"""Groups that grow by merging: a union-find over the ops of a graph, under limits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..analysis import DataflowGraph, FusePattern, OpKind
from ..device import Device
from ..limits import Limits
from .budget import count_refusal, kernel_args, shared_bytes
from .reasons import Reason, SharedMemory, TooManyArgs

_REDUCING = (OpKind.REDUCTION, OpKind.ROW_NORM)


class GrowingGroups:
    """A partition of a graph's ops that only ever gets coarser.

    Parameters
    ----------
    graph : DataflowGraph
        The ops.
    limits : Limits
        Budgets that every merge has to respect.
    device : Device
        Figures of the GPU.
    model : str
        How the shared memory of reductions is reckoned; empty: it is not.
    """

    def __init__(
        self, graph: DataflowGraph, limits: Limits, device: Device, model: str = ""
    ) -> None:
        self.graph = graph
        self.limits = limits
        self.device = device
        self.budget = device.shared_memory_budget(limits)
        self.model = model
        self.fusions = 0
        self._parent = list(range(len(graph)))
        # What a root knows of its group. ``pattern`` of an op that is no root any more is what
        # it was when it stopped being one.
        self.members: list[list[int]] = [[op] for op in range(len(graph))]
        self.pattern = [op.fuse_pattern for op in graph.ops]
        self._shared = [self.shared_bytes(op) for op in range(len(graph))]
        self._args = [kernel_args(graph, [op]) for op in range(len(graph))]

    def find(self, op: int) -> int:
        """The root of the group that ``op`` is in."""
        root = op
        while self._parent[root] != root:
            root = self._parent[root]
        while self._parent[op] != root:
            self._parent[op], op = root, self._parent[op]
        return root

    def same(self, a: int, b: int) -> bool:
        """Whether two ops are in one group."""
        return self.find(a) == self.find(b)

    def roots(self) -> list[int]:
        """The root of every group."""
        return [op for op, parent in enumerate(self._parent) if op == parent]

    def shared_bytes(self, op: int) -> int:
        """Shared memory that an op needs, in bytes per thread block."""
        if not self.model or self.graph.ops[op].kind not in _REDUCING:
            return 0
        return shared_bytes(self.graph, op, self.model)

    def merge(self, ops: Iterable[int], target: int) -> Reason | None:
        """Merge the groups of ``ops`` into that of ``target``, or say which limit forbids it."""
        root = self.find(target)
        others = [r for r in dict.fromkeys(map(self.find, ops)) if r != root]
        reason = self._limit_refusal([*others, root])
        if reason is not None:
            return reason
        self.fusions += len(others)
        for other in others:
            self._parent[other] = root
            small, large = sorted((self.members[other], self.members[root]), key=len)
            large.extend(small)
            self.members[other], self.members[root] = [], large
            self._shared[root] = max(self._shared[root], self._shared[other])
            self._args[root] += self._args[other]
            if self.pattern[other] > FusePattern.INJECTIVE:
                self.pattern[root] = max(self.pattern[root], self.pattern[other])
        return None

    def _limit_refusal(self, roots: Sequence[int]) -> Reason | None:
        """Why the groups of ``roots`` may not become one."""
        size = sum(len(self.members[root]) for root in roots)
        reason = count_refusal(self.limits, size, self.fusions + len(roots) - 1)
        if reason is not None:
            return reason
        widest = max(roots, key=lambda root: self._shared[root])
        if self._shared[widest] > self.budget:
            op = max(self.members[widest], key=self.shared_bytes)
            needed = self._shared[widest]
            attainable = needed <= self.device.opt_in_shared_memory_bytes
            return SharedMemory(self.graph.ops[op].name, needed, self.budget, attainable)
        return self._args_refusal(roots)

    def _args_refusal(self, roots: Sequence[int]) -> Reason | None:
        """Count arguments exactly only where the sum of the parts, an upper bound, is too high."""
        allowed = self.limits.max_kernel_args
        if sum(self._args[root] for root in roots) <= allowed:
            return None
        args = kernel_args(self.graph, [op for root in roots for op in self.members[root]])
        if args > allowed:
            return TooManyArgs(args, allowed)
        for root in roots:
            self._args[root] = 0
        self._args[roots[-1]] = args
        return None
