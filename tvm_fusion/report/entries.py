"""Makes the entries of a report from what was recorded while a module was built."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import tvm
from tvm import tirx

from ..analysis import Op
from ..analysis.traffic import CallTraffic
from ..codegen.figures import NO_FIGURES
from ..codegen.source import EMITTED_NAME
from ..planning.kernel_plan import COLUMN, FLAT, KernelPlan
from ..policy import Reason
from ..trace import BlockRecord, KernelRecord, Trace
from .costs import Wanted, assign_calls, sum_of
from .data import (
    FUSED_KERNEL,
    OTHER,
    SINGLE_KERNEL,
    VIEW,
    EdgeEntry,
    GroupEntry,
    KernelEntry,
    Moved,
    OpEntry,
    ReasonEntry,
    SiblingEntry,
    StorageEntry,
    TensorEntry,
)
from .storage import planned_storage, scheduled_storage


@dataclass(frozen=True)
class _Unit:
    """A group, or an op by itself: in which block, and the PrimFunc that it became."""

    number: int
    block: BlockRecord
    function: str
    ops: tuple[str, ...]
    is_group: bool


class EntryMaker:
    """Makes all entries of one build.

    Parameters
    ----------
    trace : Trace
        Recorded while ``fused`` was made.
    fused : tvm.IRModule
        The fused and scheduled module.
    before, after : sequence of CallTraffic
        What the calls of the unfused and of the fused module cost.
    """

    def __init__(
        self,
        trace: Trace,
        fused: tvm.IRModule,
        before: Sequence[CallTraffic],
        after: Sequence[CallTraffic],
    ) -> None:
        self.trace = trace
        self.fused = fused
        self.names = _unique_names(trace.blocks)
        self.before = self._costs_before(before)
        self.outside = 0  # calls that stand in no dataflow block
        self.groups = self._groups(after)
        self.group_of = {op: group for group in self.groups for op in group.ops}

    def _costs_before(self, calls: Sequence[CallTraffic]) -> dict[str, Moved]:
        """For each op what it costs unfused; nothing for one that only fusion made."""
        wanted = [_wanted(block, op) for block in self.trace.blocks for op in block.graph.ops]
        names = [self.names[b][op.name] for b, op in self._ops()]
        costs = assign_calls(calls, wanted)
        return {name: cost or Moved() for name, cost in zip(names, costs, strict=True)}

    def _ops(self) -> Iterable[tuple[int, Op]]:
        return ((b, op) for b, block in enumerate(self.trace.blocks) for op in block.graph.ops)

    # -- ops and pairs ----------------------------------------------------------------------

    def ops(self) -> tuple[OpEntry, ...]:
        """All ops, in order."""
        return tuple(
            OpEntry(
                name=self.names[b][op.name],
                function=op.function,
                origin=op.origin,
                kind=op.kind.value,
                block=block.function,
                group=self.group_of[self.names[b][op.name]].name,
                inputs=op.external_inputs,
                is_output=i in block.graph.outputs,
                before=self.before[self.names[b][op.name]],
            )
            for b, block in enumerate(self.trace.blocks)
            for i, op in enumerate(block.graph.ops)
        )

    def edges(self) -> tuple[EdgeEntry, ...]:
        """All producers and consumers."""
        return tuple(
            EdgeEntry(
                self.names[b][decision.producer],
                self.names[b][decision.consumer],
                _passed(block, decision.producer, decision.consumer),
                _reason(decision.reason),
                tuple(self.names[b][op] for op in decision.tried),
            )
            for b, block in enumerate(self.trace.blocks)
            for decision in block.decisions
        )

    def siblings(self) -> tuple[SiblingEntry, ...]:
        """All readers of one tensor that were considered."""
        return tuple(
            SiblingEntry(
                self.names[b][decision.first],
                self.names[b][decision.second],
                self.names[b].get(decision.tensor, decision.tensor),
                _reason(decision.reason),
                tuple(self.names[b][op] for op in decision.tried),
            )
            for b, block in enumerate(self.trace.blocks)
            for decision in block.siblings
        )

    # -- groups and kernels -----------------------------------------------------------------

    def _groups(self, calls: Sequence[CallTraffic]) -> tuple[GroupEntry, ...]:
        """All groups, ops that stayed by themselves included, in the order of their first op."""
        units: list[_Unit] = []
        for b, block in enumerate(self.trace.blocks):
            grouped = {op for group in block.groups for op in group.ops}
            units += [_Unit(b, block, group.name, group.ops, True) for group in block.groups]
            units += [
                _Unit(b, block, op.function, (op.name,), False)
                for op in block.graph.ops
                if op.name not in grouped
            ]
        units.sort(key=lambda unit: (unit.number, unit.block.graph.index[unit.ops[0]]))
        wanted = [Wanted(unit.block.function, unit.function, unit.ops) for unit in units]
        costs = assign_calls(calls, wanted)
        self.outside = len(calls) - sum(cost is not None for cost in costs)
        times = Counter(unit.function for unit in units)
        seen: Counter[str] = Counter()
        entries = []
        for unit, cost in zip(units, costs, strict=True):
            seen[unit.function] += 1
            number = f"#{seen[unit.function]}" if times[unit.function] > 1 else ""
            entries.append(self._group(f"{unit.function}{number}", unit, cost))
        return tuple(entries)

    def notes(self) -> list[str]:
        """What the entries leave out."""
        if not self.outside:
            return []
        return [
            f"{self.outside} calls stand outside of dataflow blocks: they are in the totals, and "
            f"in no group"
        ]

    def _group(self, name: str, unit: _Unit, cost: Moved | None) -> GroupEntry:
        members = [unit.block.graph.index[op] for op in unit.ops]
        names = tuple(self.names[unit.number][op] for op in unit.ops)
        kind = FUSED_KERNEL if unit.is_group else SINGLE_KERNEL
        if cost is None:
            kind = VIEW if unit.block.graph.ops[members[0]].is_view else OTHER
        kernel = self.trace.kernels.get(unit.function) if cost is not None else None
        return GroupEntry(
            name=name,
            kernel=unit.function if kernel is not None else "",
            kind=kind,
            ops=names,
            storage=self._storage(unit.block, members, unit.function, kernel),
            before=sum_of(self.before[name] for name in names),
            after=cost or Moved(),
        )

    def _storage(
        self, block: BlockRecord, ops: Sequence[int], function: str, kernel: KernelRecord | None
    ) -> tuple[StorageEntry, ...]:
        if kernel is None:
            return ()
        if kernel.plan is not None:
            return planned_storage(block.graph, ops, kernel.plan)
        func = self.fused[function]
        return scheduled_storage(func) if isinstance(func, tirx.PrimFunc) else ()

    def kernels(self) -> tuple[KernelEntry, ...]:
        """All scheduled PrimFuncs."""
        present = {gvar.name_hint for gvar in self.fused.functions}
        return tuple(
            KernelEntry(
                name=name,
                rule=record.rule,
                layout=_layout(record.plan) if record.plan is not None else "",
                figures=record.figures or NO_FIGURES,
                recompute_factor=record.plan.recompute_factor if record.plan is not None else 1.0,
                notes=record.plan.notes if record.plan is not None else (),
                tvmscript=self.fused[name].script(),
                cuda=_kernel_source(record.cuda, name),
            )
            for name, record in self.trace.kernels.items()
            if name in present
        )


def _wanted(block: BlockRecord, op: Op) -> Wanted:
    return Wanted(block.function, op.function, (op.name,))


def _unique_names(blocks: Sequence[BlockRecord]) -> list[dict[str, str]]:
    """For each block the names of its ops in the report, where several blocks may use one name."""
    count = Counter(op.name for block in blocks for op in block.graph.ops)
    in_function = Counter((block.function, op.name) for block in blocks for op in block.graph.ops)

    def name(b: int, block: BlockRecord, op: str) -> str:
        if count[op] == 1:
            return op
        if in_function[block.function, op] == 1:
            return f"{block.function}.{op}"
        return f"{block.function}.{b}.{op}"

    return [
        {op.name: name(b, block, op.name) for op in block.graph.ops}
        for b, block in enumerate(blocks)
    ]


def _passed(block: BlockRecord, producer: str, consumer: str) -> tuple[TensorEntry, ...]:
    """The tensors that one op makes and another reads."""
    read = block.graph.ops[block.graph.index[consumer]].reads
    made = [key for key in read if isinstance(key, tuple) and key[:2] == ("out", producer)]
    several = block.graph.ops[block.graph.index[producer]].num_outputs > 1
    return tuple(_tensor(block, key, several) for key in made if key in block.tensors)


def _tensor(block: BlockRecord, key: Hashable, several: bool) -> TensorEntry:
    assert isinstance(key, tuple)
    known = block.tensors[key]
    name = f"{key[1]}[{key[2]}]" if several else str(key[1])
    return TensorEntry(name, known.shape, known.dtype, known.nbytes)


def _reason(reason: Reason) -> ReasonEntry:
    return ReasonEntry(
        code=reason.code,
        verdict=reason.verdict,
        message=reason.message,
        resource=reason.resource,
        would_fuse_if=reason.would_fuse_if,
        limits_needed=reason.limits_needed,
        figures=reason.figures,
        is_free=reason.is_free,
    )


def _layout(plan: KernelPlan) -> str:
    """How the threads of a planned kernel are laid out."""
    block = f"{plan.threads_per_block} threads a block"
    vector = f", {plan.vector} elements a thread at a time" if plan.vector > 1 else ""
    if plan.mode == FLAT:
        text = f"threads along the elements, {block}{vector}"
    else:
        along = "across rows" if plan.mode == COLUMN else "along a row"
        text = (
            f"{plan.rows} rows of {plan.row_points} points, {plan.rows_per_block} a block, "
            f"threads {along}, {block}{vector}"
        )
    if plan.alternatives > 1:
        text += f"; the host chooses among {plan.alternatives} kernels by the length of a row"
    return text


#: Where the first kernel begins, its forward declaration included.
_FIRST_KERNEL = re.compile(r'^extern "C" __global__', re.MULTILINE)


def _kernel_source(cuda: str, name: str) -> str:
    """CUDA source from the first kernel on, under the name that the kernel has in the build."""
    start = _FIRST_KERNEL.search(cuda)
    text = cuda[start.start() :] if start else cuda
    return text.replace(f"{EMITTED_NAME}_kernel", f"{name}_kernel")
