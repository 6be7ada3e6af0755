"""The classic rule: chains of elementwise ops with one reader and one producer each.

Topological order; from each unassigned elementwise op follow the chain while the successor is
unique and its predecessor is unique, up to ``max_depth`` ops; a reduction may close the chain if
its shared memory fits the budget; anything else cuts it. Only ops count as predecessors and
successors; parallel edges count separately; being a function output counts as a successor. Pure
reshapes inside of a chain are part of it; at its end they are left outside as views.
"""

from __future__ import annotations

from dataclasses import replace

from ..analysis import ClassicKind, DataflowGraph
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
from .budget import check_model, count_refusal, kernel_args, shared_bytes
from .reasons import (
    Barrier,
    Blocked,
    ChainClosed,
    ManyConsumers,
    ManyProducers,
    Reason,
    SharedMemory,
    TooManyArgs,
    View,
)

#: Depth of a chain where the limits say nothing.
DEFAULT_MAX_DEPTH = 8


@register_policy("single_chain")
class SingleChain:
    """The classic single-chain policy.

    Parameters
    ----------
    shared_memory_model : str
        ``"thread_block"`` (default): a reduction needs the bytes that one thread block stages.
        ``"whole_output"``: it needs its whole output, as the classic rule has it.
    """

    name = "single_chain"

    def __init__(self, shared_memory_model: str = "thread_block") -> None:
        self.shared_memory_model = check_model(shared_memory_model)

    def partition(
        self,
        graph: DataflowGraph,
        limits: Limits,
        device: Device,
        check: GroupCheck | None = None,
    ) -> Partition:
        """Form chains. See :class:`tvm_fusion.Policy`."""
        return _Run(graph, limits, device, self.shared_memory_model).partition()


class _Run:
    """One run of the rule over one graph."""

    def __init__(self, graph: DataflowGraph, limits: Limits, device: Device, model: str) -> None:
        self.graph = graph
        deepest = DEFAULT_MAX_DEPTH if limits.max_depth is None else limits.max_depth
        self.limits = replace(limits, max_depth=deepest)
        self.device = device
        self.budget = device.shared_memory_budget(limits)
        self.model = model
        self.fusions = 0
        self.refusals: dict[tuple[int, int], Refusal] = {}

    def partition(self) -> Partition:
        assigned: set[int] = set()
        groups = []
        for op in self.graph.topological_order:
            if op in assigned or not self._starts(op):
                continue
            chain = self._follow(op, assigned)
            while len(chain) > 1 and self.graph.ops[chain[-1]].is_view:
                chain.pop()
            assigned.update(chain)
            if len(chain) > 1:
                self.fusions += len(chain) - 1
                shared = max(self._shared(op) for op in chain)
                groups.append(Group(tuple(chain), shared))
        return Partition(
            tuple(groups),
            decide_edges(self.graph, groups, self._edge_refusal),
            decide_siblings(self.graph, groups, siblings_apart(self.graph, self._op_refusal)),
        )

    def _starts(self, op: int) -> bool:
        return self.graph.ops[op].classic is ClassicKind.ELEMENTWISE

    def _follow(self, start: int, assigned: set[int]) -> list[int]:
        chain = [start]
        while True:
            last = chain[-1]
            successors = self.graph.consumers(last)
            if len(successors) != 1 or last in self.graph.outputs:
                return chain
            following = successors[0]
            reason = self._refusal(chain, following)
            if following in assigned or reason is not None:
                if reason is not None:
                    self.refusals[last, following] = Refusal(reason, (*chain, following))
                return chain
            chain.append(following)
            if self.graph.ops[following].classic is ClassicKind.REDUCTION:
                return chain

    def _refusal(self, chain: list[int], op: int) -> Reason | None:
        """Why ``op`` may not be the next in ``chain``, whose last op it reads."""
        pair = self._pair_refusal(chain[-1], op)
        if pair is not None:
            return pair
        reason = count_refusal(self.limits, len(chain) + 1, self.fusions + len(chain))
        if reason is not None:
            return reason
        args = kernel_args(self.graph, [*chain, op])
        if args > self.limits.max_kernel_args:
            return TooManyArgs(args, self.limits.max_kernel_args)
        needed = self._shared(op)
        if needed > self.budget:
            attainable = needed <= self.device.opt_in_shared_memory_bytes
            return SharedMemory(self.graph.ops[op].name, needed, self.budget, attainable)
        return None

    def _pair_refusal(self, producer: int, consumer: int) -> Reason | None:
        """What forbids the pair whatever chain it stands in."""
        for op in (producer, consumer):
            reason = self._op_refusal(op)
            if reason is not None:
                return reason
        if self.graph.ops[producer].classic is ClassicKind.REDUCTION:
            return ChainClosed(self.graph.ops[producer].name)
        readers = len(self.graph.consumers(producer)) + (producer in self.graph.outputs)
        if readers != 1:
            return ManyConsumers(self.graph.ops[producer].name, readers)
        reads = len(self.graph.producers(consumer))
        if reads != 1:
            return ManyProducers(self.graph.ops[consumer].name, reads)
        return None

    def _shared(self, op: int) -> int:
        if self.graph.ops[op].classic is not ClassicKind.REDUCTION:
            return 0
        return shared_bytes(self.graph, op, self.model)

    def _op_refusal(self, op: int) -> Reason | None:
        """What forbids every pair with an op."""
        node = self.graph.ops[op]
        if node.blocked:
            return Blocked(node.name, node.blocked)
        if node.classic is ClassicKind.BARRIER:
            return Barrier(node.name, node.kind.value)
        return None

    def _edge_refusal(self, producer: int, consumer: int, grouped: frozenset[int]) -> Refusal:
        """Why two ops are not in one group."""
        for op in (consumer, producer):
            if self.graph.ops[op].is_view and op not in grouped:
                return Refusal(View(self.graph.ops[op].name))
        if (producer, consumer) in self.refusals:
            return self.refusals[producer, consumer]
        reason = self._pair_refusal(producer, consumer)
        assert reason is not None, "a pair that nothing forbids is in one chain"
        return Refusal(reason)
