"""Writes a kernel nest by nest: walks over rows, reductions, stores, and the launch around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from ...device.gpu import STATIC_SHARED_BYTES
from ...planning.kernel_plan import COLUMN, GLOBAL, REGISTER, SCALAR, SHARED, KernelPlan
from .barriers import Barriers, barrier
from .block_input import load_for_block
from .number import Number
from .point import Point
from .reduction import Reduction, allreduce, exchange
from .rows import Rows
from .source import Source, all_of, loop, sequence, value_var
from .values import Values

#: Loops of at most this many elements are unrolled: registers are not indexed by variables.
_UNROLLED = 64

#: The same where no registers are indexed: the compiler would hold all loads of a pass at once.
_UNROLLED_PASS = 16

#: A point within a serial reduction is none of the elements that threads divide among them.
_NONE_OF_ITS_OWN = (-1,)


def write_kernel(func: tirx.PrimFunc, plan: KernelPlan) -> tirx.PrimFunc:
    """Write the kernel of a group.

    Parameters
    ----------
    func : tirx.PrimFunc
        The group's unscheduled PrimFunc. It is not changed.
    plan : KernelPlan
        The plan that :func:`tvm_fusion.planning.plan_kernel` made of it.

    Returns
    -------
    tirx.PrimFunc
        Scheduled, with the same parameters.

    Raises
    ------
    ValueError
        The plan belongs to another function.
    """
    alternatives = []
    remaining: KernelPlan | None = plan
    while remaining is not None:
        alternatives.append(_Writer(Source(func, remaining)))
        remaining = remaining.longer
    body = alternatives[-1].write()
    for writer in reversed(alternatives[:-1]):
        body = tirx.IfThenElse(writer.fits(), writer.write(), body)
    arrays = [array for writer in alternatives for array in writer.values.allocated]
    root = s_tir.SBlock([], [], [], "root", body, alloc_buffers=arrays)
    whole = s_tir.SBlockRealize([], tirx.IntImm("bool", 1), root)
    made = tirx.PrimFunc(list(func.params), whole, func.ret_type, func.attrs)
    return made.with_attr("tirx.is_scheduled", True)


class _Writer:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.plan = source.plan
        self.analyzer = tvm.sym.Analyzer()
        self.rows = Rows(source, self.analyzer)
        self.values = Values(source, self.rows)
        self.statements = self.values.statements
        self.looped: set[Any] = set()

    def fits(self) -> Any:
        """The condition under which rows are short enough for the plan."""
        layout = self.source.layout
        walks = (c for n in self.source.kept for c in (layout.local[n], layout.reduced[n]))
        sizes = sorted({size for c in walks if (size := layout.size(c)).symbols}, key=str)
        return all_of(*(self.source.extent(size) <= self.plan.bound for size in sizes))

    def write(self) -> Any:
        """The kernel's loop nest."""
        self._allocate_shared()
        for nest in self.source.kept:
            self._nest(nest)
        # Loops are unrolled by the CUDA compiler, which leaves the source small and quick to read.
        zero = tirx.IntImm("int32", 0)
        body = tirx.AttrStmt(zero, "pragma_unroll_explicit", zero, sequence(self.statements))
        return self._bind_threads(body)

    def _nest(self, nest: int) -> None:
        """Write a nest, behind a barrier where it touches what other threads touched before."""
        already = len(self.statements)
        self.values.shared_reads.clear()
        if self.source.group.nests[nest].reduces:
            self._reduce(nest)
        elif self.plan.placement[nest] == SCALAR:
            self._scalar(nest)
        else:
            self._spatial(nest)
        written = {self.shared[nest]} if self.plan.placement[nest] == SHARED else set()
        exchanged = set(self._exchange_arrays(nest))
        if self.barriers.needed(nest, self.values.shared_reads, written | exchanged):
            self.statements.insert(already, barrier(self.scope))
        if exchanged:
            self.barriers.passed()  # the one between writing parts and reading them
        self.barriers.touched(self.values.shared_reads | exchanged, written)

    # -- arrays on the chip -------------------------------------------------------------------

    def _allocate_shared(self) -> None:
        shared = self.source.shared_arrays()
        self.scope = "shared" if shared.nbytes <= STATIC_SHARED_BYTES else "shared.dyn"
        arrays = [
            self.values.allocate(f"shared_{i}", size, dtype, self.scope)
            for i, (size, dtype) in enumerate(zip(shared.sizes, shared.dtypes, strict=True))
        ]
        self.shared = {key: arrays[a] for key, a in shared.array_of.items()}
        self.barriers = Barriers({a: end // 2 for a, end in zip(arrays, shared.ends, strict=True)})
        for nest in self.source.kept:
            if self.plan.placement[nest] == SHARED:
                for store in self.source.group.nests[nest].stores:
                    self.values.arrays[store.tensor] = self.shared[nest]
        for tensor in self.source.block_inputs:
            array = self.shared[("input", tensor)]
            self.statements.append(load_for_block(self.values, tensor, array))
            self.values.block_arrays[self.source.buffers[tensor]] = (tensor, array)
        if self.source.block_inputs:
            self.statements.append(barrier(self.scope))

    def _exchange_arrays(self, nest: int) -> list[Any]:
        """The arrays through which threads exchange what they reduced, one for each value."""
        stores = range(len(self.source.group.nests[nest].stores))
        return [self.shared[nest, n] for n in stores if (nest, n) in self.shared]

    def _register_array(self, nest: int, number: int) -> Any:
        """The array of a nest's own elements."""
        store = self.source.group.nests[nest].stores[number]
        elements = self.source.elements
        count = elements.per_thread(self.source.layout.local[nest]) * elements.lanes
        name = f"{self.source.group.nests[nest].name}_own"
        array = self.values.allocate(name, count, self.source.group.tensors[store.tensor].dtype)
        self.values.arrays[store.tensor] = array
        return array

    # -- walks --------------------------------------------------------------------------------

    def _walk(self, classes: tuple[int, ...], write: Callable[[Point], list[Any]]) -> Any:
        """Loops over the thread's elements of some local classes.

        ``write`` gets the point and returns what goes into the loop over vectors; it ends in
        :meth:`_lane_loop` for what is done lane by lane.
        """
        source, plan = self.source, self.plan
        elements = source.elements
        vector, steps = elements.vector(classes), self._steps(classes)
        lanes = elements.lanes if source.layout.lane is not None else vector
        several = not isinstance(steps, int) or steps > 1
        step: Any = tirx.Var("step", source.index_type) if several else source.const(0)
        lane: Any = tirx.Var("lane", source.index_type) if lanes > 1 else None
        self._bind(step, steps)
        self._bind(lane, lanes)
        within: Any = lane if lane is not None else source.const(0)
        parts = [(self.rows.thread, plan.threads), (step, steps if several else 1)]
        parts = [(v, e if isinstance(e, int) else None) for v, e in parts]
        if plan.chunk:
            parts.append((self.rows.chunk, None))
        own_lane = source.layout.lane is not None
        first = Number.chain([(source.const(0), vector), *parts], source.index_type)
        point = Number.chain([(within, lanes), *parts], source.index_type)
        values = {**self.rows.values, **self.rows.decode(classes, first if own_lane else point)}
        if source.layout.lane is not None:
            values[source.layout.lane] = Number.of(within, lanes, source.index_type)
        element = self.rows.simplify(step * lanes + within)
        block = plan.threads_per_block
        slot = self.rows.simplify(element * block + self.rows.linear_thread())
        inside = all_of(self._inside(classes, first.expression()), self.rows.is_live())
        where = Point(values, classes, element, slot, lane, lanes, inside)
        self.values.touches_registers = False
        body = sequence(write(where))
        most = _UNROLLED if self.values.touches_registers else _UNROLLED_PASS
        unrolled = isinstance(steps, int) and steps * lanes <= most
        kind = tirx.ForKind.UNROLLED if unrolled else tirx.ForKind.SERIAL
        return loop(steps, body, step, kind)

    def _inside(self, classes: tuple[int, ...], first: Any) -> Any | None:
        """The condition under which the vector from ``first`` on is part of the row."""
        size = self.source.layout.size(classes)
        covered = self.source.elements.per_thread(classes) * self.plan.threads
        whole = size.static == covered or (bool(self.plan.chunk) and size.number % covered == 0)
        return None if whole else self.rows.simplify(first) < self.source.extent(size)

    def _steps(self, classes: tuple[int, ...]) -> Any:
        """Turns of the loop over vectors: a number, or an expression where it is not bounded."""
        elements = self.source.elements
        if elements.is_bounded(classes):
            return elements.steps(classes)
        size = self.source.extent(self.source.layout.size(classes))
        covered = self.plan.threads * elements.vector(classes)
        return self.rows.simplify((size + (covered - 1)) // covered)

    def _bind(self, var: Any, extent: Any) -> None:
        if isinstance(var, tirx.Var):
            zero = self.source.const(0)
            extent = self.source.const(extent) if isinstance(extent, int) else extent
            self.analyzer.bind(var, tvm.ir.Range(zero, extent))

    def _lane_loop(self, point: Point, body: list[Any]) -> list[Any]:
        """What is done before, in and behind the loop over the lanes of a point."""
        inner = [*point.body, *body]
        made = list(point.before)
        if inner:
            whole = sequence(inner)
            made.append(whole if point.lane is None else self._over_lanes(point, whole))
        made += point.after
        point.before, point.body, point.after = [], [], []
        return made

    def _over_lanes(self, point: Point, body: Any) -> Any:
        """The loop over lanes; each has a variable of its own."""
        lane = point.lane
        if lane in self.looped:
            lane = tirx.Var(lane.name, self.source.index_type)
            body = tvm_ffi.structural_map(
                body, (tirx.Var, lambda var: lane if var.same_as(point.lane) else var)
            )
        self.looped.add(lane)
        return loop(point.lanes, body, lane)

    # -- nests --------------------------------------------------------------------------------

    def _spatial(self, nest: int) -> None:
        place = self.plan.placement[nest]
        tensor = self.source.group.nests[nest].stores[0].tensor
        if place == REGISTER:
            self._register_array(nest, 0)

        def write(point: Point) -> list[Any]:
            value = self.values.at_own_point(nest, point)
            if place == GLOBAL:
                self.values.store(nest, value, point)
                return self._lane_loop(point, [])
            where = point.element if place == REGISTER else point.slot
            self.values.touches_registers |= place == REGISTER
            array = self.values.arrays[tensor]
            if tensor in self.source.outputs and place == SHARED:
                # Not read back: TVM would put a barrier between store and load of each element.
                named = value_var(self.source.group.nests[nest].name, str(array.dtype))
                point.body += self.values.bind(named, value)
                value = named
            point.body.append(tirx.BufferStore(array, value, [where]))
            if tensor in self.source.outputs:
                kept = value if place == SHARED else tirx.BufferLoad(array, [where])
                self.values.store(nest, kept, point)
            return self._lane_loop(point, [])

        self.statements.append(self._walk(self.source.layout.local[nest], write))

    def _scalar(self, nest: int) -> None:
        point = self._row_point(self.rows.is_live())
        value = self.values.at_own_point(nest, point)
        self.statements += self._lane_loop(point, [])
        self._name_scalar(nest, 0, value)

    def _row_point(self, inside: Any) -> Point:
        """The row as a whole."""
        zero = self.source.const(0)
        return Point(self.rows.values, (), zero, zero, inside=inside)

    def _name_scalar(self, nest: int, number: int, value: Any) -> None:
        """Give the value of a row its name, and store it where it is an output."""
        group = self.source.group
        tensor = group.nests[nest].stores[number].tensor
        var = value_var(group.nests[nest].name, group.tensors[tensor].dtype)
        self.statements += self.values.bind(var, value)
        self.values.scalars[tensor] = var
        if tensor not in self.source.outputs:
            return
        first = self.rows.thread < 1 if self.plan.threads > 1 else None
        point = self._row_point(all_of(self.rows.is_live(), first))
        self.values.store(nest, var, point, number)
        self.statements += self._lane_loop(point, [])

    def _reduce(self, nest: int) -> None:
        reduction = Reduction(self.source, self.values, nest)
        if self.source.layout.local[nest]:
            self._reduce_serially(nest, reduction)
        else:
            self._reduce_together(nest, reduction)

    def _reduce_together(self, nest: int, reduction: Reduction) -> None:
        """All threads of a row reduce their parts of it, then those of each other."""
        lanes = self.values.lanes()
        accumulators = reduction.allocate(lanes)
        self.statements += reduction.initial(accumulators, lanes)

        def write(point: Point) -> list[Any]:
            at = point.lane if lanes > 1 else self.source.const(0)
            updates = reduction.update(accumulators, point, at)
            return self._lane_loop(point, updates)

        self.statements.append(self._walk(self.source.layout.reduced[nest], write))
        results, wait = accumulators, barrier(self.scope)
        arrays = self._exchange_arrays(nest)
        if arrays and self.values.shared_reads:
            self.statements.append(wait)  # they may lie over what was read here for the last time
        if self.source.elements.exchanges:
            results, statements = exchange(reduction, self.rows, accumulators, arrays, lanes, wait)
            self.statements += statements
        elif self.plan.threads > 1:
            results, statements = allreduce(reduction, self.rows, accumulators, arrays, wait)
            self.statements += statements
        for number, store in enumerate(self.source.group.nests[nest].stores):
            if self.plan.placement[nest] == SCALAR:
                value = tirx.BufferLoad(results[number], [self.source.const(0)])
                self._name_scalar(nest, number, value)
            else:
                self.values.arrays[store.tensor] = results[number]
                self._store_lanes(nest, number, results[number])

    def _store_lanes(self, nest: int, number: int, array: Any) -> None:
        """Store what every lane has of an output."""
        tensor = self.source.group.nests[nest].stores[number].tensor
        if tensor not in self.source.outputs:
            return

        def write(point: Point) -> list[Any]:
            value = tirx.BufferLoad(array, [point.element])
            self.values.store(nest, value, point, number)
            return self._lane_loop(point, [])

        self.statements.append(self._walk((), write))

    def _reduce_serially(self, nest: int, reduction: Reduction) -> None:
        """Each thread reduces for its own elements."""
        group, layout = self.source.group, self.source.layout
        place = self.plan.placement[nest]
        stores = range(len(group.nests[nest].stores))
        if place == REGISTER:
            for number in stores:
                self._register_array(nest, number)

        def write(point: Point) -> list[Any]:
            accumulators = reduction.allocate(point.lanes)
            made = list(reduction.initial(accumulators, point.lanes))
            made.append(self._serial_loop(nest, point, reduction, accumulators))
            at = point.lane if point.lane is not None else self.source.const(0)
            for number in stores:
                tensor = group.nests[nest].stores[number].tensor
                value = tirx.BufferLoad(accumulators[number], [at])
                if place in (REGISTER, SHARED):
                    where = point.element if place == REGISTER else point.slot
                    array = self.values.arrays[tensor]
                    point.body.append(tirx.BufferStore(array, value, [where]))
                if tensor in self.source.outputs:
                    self.values.store(nest, value, point, number)
            return [*made, *self._lane_loop(point, [])]

        self.statements.append(self._walk(layout.local[nest], write))

    def _serial_loop(
        self, nest: int, outer: Point, reduction: Reduction, accumulators: Sequence[Any]
    ) -> Any:
        """The loop of one thread over what it reduces for one of its vectors of elements."""
        classes = self.source.layout.reduced[nest]
        size = self.source.layout.size(classes).number
        turn: Any = tirx.Var("turn", self.source.index_type) if size > 1 else self.source.const(0)
        self._bind(turn, size)
        number = Number.of(turn, size, self.source.index_type)
        values = {**outer.values, **self.rows.decode(classes, number)}
        single = not classes  # a reduction over one element: the point is the thread's own
        point = Point(
            values,
            outer.classes if single else _NONE_OF_ITS_OWN,
            outer.element if single else self.source.const(0),
            outer.slot if single else self.source.const(0),
            outer.lane,
            outer.lanes,
            outer.inside,
        )
        at = outer.lane if outer.lane is not None else self.source.const(0)
        body = sequence(self._lane_loop(point, reduction.update(accumulators, point, at)))
        kind = tirx.ForKind.UNROLLED if size <= _UNROLLED // 4 else tirx.ForKind.SERIAL
        return loop(size, body, turn, kind)

    # -- launch -------------------------------------------------------------------------------

    def _bind_threads(self, body: Any) -> Any:
        plan = self.plan
        if any(array.scope() == "shared.dyn" for array in self.values.allocated):
            # TVM's MergeSharedMemoryAllocations fails at a name that is given to a loaded value in
            # the scope of the arrays itself; this attribute, which means nothing else, opens one.
            one = tirx.IntImm("int32", 1)
            body = tirx.AttrStmt(one, "extern_scope", one, body)
        tags = ("threadIdx.x", "threadIdx.y")
        if plan.mode == COLUMN or plan.threads == 1:
            tags = tags[::-1]
        if plan.threads_per_block == 1:
            body = self._bound(tirx.Var("thread", self.source.index_type), 1, "threadIdx.x", body)
        if plan.threads > 1:
            body = self._bound(self.rows.thread, plan.threads, tags[0], body)
        if plan.rows_per_block > 1:
            body = self._bound(self.rows.row_in_block, plan.rows_per_block, tags[1], body)
        return self._bound(self.rows.block, self.rows.grid, "blockIdx.x", body)

    def _bound(self, var: Any, extent: Any, tag: str, body: Any) -> Any:
        zero = self.source.const(0)
        extent = self.source.const(extent) if isinstance(extent, int) else extent
        axis = tirx.IterVar(
            tvm.ir.Range(zero, extent),
            tirx.Var(tag, self.source.index_type),
            tirx.IterVar.ThreadIndex,
            tag,
        )
        return tirx.For(var, zero, extent, tirx.ForKind.THREAD_BINDING, body, axis)
