"""Sets of ops as kernels: their nests, their plan, their modelled time, or why there is none."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from ..analysis import DataflowGraph, OpKind
from ..analysis.nests import Nests, concatenate, rename
from ..device import Device
from ..limits import Limits
from ..planning.kernel_plan import CannotPlan, KernelPlan
from ..planning.planner import plan_kernel
from .reasons import (
    Barrier,
    Blocked,
    GatherInside,
    NoCommonAxis,
    NoPlan,
    Reason,
    Recompute,
    RowDoesNotFit,
    SymbolicRow,
    TooManyArgs,
    TooManyNests,
    UnreadableNests,
)
from .roofline import kernel_seconds, thread_blocks

#: Loop nests that are planned together at most: planning takes time that grows with them.
_MOST_NESTS = 512


@dataclass(frozen=True)
class Unit:
    """Ops that one planned kernel holds.

    Parameters
    ----------
    ops : tuple of int
        In topological order.
    nests : Nests
        Their loop nests.
    plan : KernelPlan
        The kernel.
    seconds : float
        Its modelled time.
    thread_blocks : int
        Its thread blocks, symbolic extents taken as 128.
    """

    ops: tuple[int, ...]
    nests: Nests
    plan: KernelPlan
    seconds: float
    thread_blocks: int


def op_refusal(graph: DataflowGraph, op: int) -> Reason | None:
    """Why an op takes part in no planned kernel, whatever the others are."""
    node = graph.ops[op]
    if node.blocked:
        return Blocked(node.name, node.blocked)
    if node.kind is OpKind.COMPOSITE or (node.kind is OpKind.BARRIER and node.nests is None):
        return Barrier(node.name, node.kind.value)
    if node.nests is None:
        return UnreadableNests(node.name, node.unreadable or "it has none")
    return None


class UnitPlanner:
    """Plans sets of ops.

    Parameters
    ----------
    graph : DataflowGraph
        The ops.
    limits : Limits
        Budgets of a kernel.
    device : Device
        Figures of the GPU.
    """

    def __init__(self, graph: DataflowGraph, limits: Limits, device: Device) -> None:
        self.graph = graph
        self.limits = limits
        self.device = device
        self.shared_limit = device.shared_memory_budget(limits)
        self._planned: dict[Hashable, KernelPlan | CannotPlan] = {}

    def plan(self, ops: Sequence[int], first: str, second: str) -> Unit | Reason:
        """The kernel of some ops, or why there is none.

        Parameters
        ----------
        ops : sequence of int
            In topological order; none of them has an :func:`op_refusal`.
        first, second : str
            The pair that the reason speaks of.
        """
        parts = [nests for op in ops if (nests := self.graph.ops[op].nests) is not None]
        nests = concatenate(parts, self.graph.results_read_outside(ops))
        reason = self._refusal(ops, nests)
        if reason is not None:
            return reason
        plan = self._plan_once(nests)
        if isinstance(plan, CannotPlan):
            return self._reason(plan, first, second)
        seconds = kernel_seconds(plan, nests, self.device)
        return Unit(tuple(ops), nests, plan, seconds, thread_blocks(plan, nests))

    def _plan_once(self, nests: Nests) -> KernelPlan | CannotPlan:
        """The plan; one for all groups that differ only in the names of tensors."""
        alike = rename(nests, {tensor: i for i, tensor in enumerate(nests.tensors)}, {})
        key = (alike.nests, tuple(alike.tensors.values()), alike.inputs, alike.outputs)
        if key not in self._planned:
            try:
                self._planned[key] = plan_kernel(
                    nests,
                    self.shared_limit,
                    self.device.threads_per_block,
                    self.device.registers_per_multiprocessor,
                )
            except CannotPlan as error:
                self._planned[key] = error
        return self._planned[key]

    def _refusal(self, ops: Sequence[int], nests: Nests) -> Reason | None:
        """What can be told without planning."""
        if len(nests.nests) > _MOST_NESTS:
            return TooManyNests(len(nests.nests), _MOST_NESTS)
        args = len(nests.inputs) + len(nests.outputs)
        if args > self.limits.max_kernel_args:
            return TooManyArgs(args, self.limits.max_kernel_args)
        inputs = set(nests.inputs)
        for op in ops:
            if any(tensor not in inputs for tensor in self._gathered(op)):
                return GatherInside(self.graph.ops[op].name)
        return None

    def _gathered(self, op: int) -> list[Hashable]:
        """Tensors that an op reads at indices that depend on data."""
        nests = self.graph.ops[op].nests
        loads = [load for nest in nests.nests for load in nest.loads] if nests else []
        return [load.tensor for load in loads if load.gathers]

    def _reason(self, error: CannotPlan, first: str, second: str) -> Reason:
        """The reason for a pair that a group cannot be planned."""
        figures = error.figures
        if error.code == "no_common_axis":
            return NoCommonAxis(first, second, error.message)
        if error.code == "symbolic_row":
            return SymbolicRow(first, second, error.message)
        if error.code == "shared_memory":
            needed, allowed = int(figures["bytes_needed"]), int(figures["bytes_allowed"])
            attainable = needed <= self.device.opt_in_shared_memory_bytes
            return RowDoesNotFit(first, second, needed, allowed, attainable)
        if error.code == "recompute":
            return Recompute(first, second, float(figures["factor"]), error.message)
        return NoPlan(first, second, error.code, error.message)
