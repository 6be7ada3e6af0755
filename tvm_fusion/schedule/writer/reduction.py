"""Reductions: accumulators of one thread, and the exchange between the threads of a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx

from ...analysis.nest_reader import reduction_update
from ...planning.launch import WARP_THREADS
from ...planning.shared import exchanged_as
from .point import Point
from .rows import Rows
from .source import Source, loop, sequence
from .values import Values

_COMBINE = {
    "Add": lambda a, b: a + b,
    "Mul": lambda a, b: a * b,
    "Max": tirx.max,
    "Min": tirx.min,
}


class Reduction:
    """The accumulators of a reducing nest, one for each value that it reduces.

    Parameters
    ----------
    source : Source
        The group.
    values : Values
        Evaluates what is reduced.
    nest : int
        The nest.
    """

    def __init__(self, source: Source, values: Values, nest: int) -> None:
        self.source = source
        self.values = values
        self.nest = nest
        self.stores = source.group.nests[nest].stores
        parts = [reduction_update(source.block(nest), n) for n in range(len(self.stores))]
        self.combiners = [_COMBINE[part[0]] for part in parts]
        self.initials = [part[2] for part in parts]
        self.dtypes = [source.group.tensors[store.tensor].dtype for store in self.stores]

    def allocate(
        self, lanes: int, what: str = "partial", dtypes: Sequence[str] | None = None
    ) -> list[Any]:
        """A register for each value and lane, of other types than their own where given."""
        name = self.source.group.nests[self.nest].name
        types = dtypes or self.dtypes
        return [self.values.allocate(f"{name}_{what}", lanes, dtype) for dtype in types]

    def initial(self, accumulators: Sequence[Any], lanes: int) -> list[Any]:
        """Set the accumulators to where the reduction begins."""
        return [
            tirx.BufferStore(accumulator, value, [self.source.const(lane)])
            for accumulator, value in zip(accumulators, self.initials, strict=True)
            for lane in range(lanes)
        ]

    def update(self, accumulators: Sequence[Any], point: Point, at: Any) -> list[Any]:
        """Combine the accumulators with the values at a point; points outside change nothing."""
        made = []
        for number, accumulator in enumerate(accumulators):
            value = self.values.at_own_point(self.nest, point, number)
            if point.inside is not None:
                value = tirx.Select(point.inside, value, self.initials[number])
            old = tirx.BufferLoad(accumulator, [at])
            made.append(tirx.BufferStore(accumulator, self.combiners[number](old, value), [at]))
        return made


def exchange(
    reduction: Reduction,
    rows: Rows,
    accumulators: Sequence[Any],
    shared: Sequence[Any],
    lanes: int,
    wait: Any,
) -> tuple[list[Any], list[Any]]:
    """Combine the accumulators of the threads of a row where threads of a warp have other rows.

    Each thread puts its part into shared memory, next to those of the neighbouring rows, and
    combines the parts of its row. ``wait`` is the barrier in between.

    Returns
    -------
    results : list of Buffer
        One for each value, with an element for each lane.
    statements : list of Stmt
        The exchange.
    """
    source = reduction.source
    plan = source.plan
    results = reduction.allocate(lanes, "total")

    def slot(lane: Any, thread: Any) -> Any:
        number = lane * plan.threads_per_block + thread * plan.rows_per_block
        return rows.simplify(number + rows.row_in_block)

    put, combine = [], list(reduction.initial(results, lanes))
    other = tirx.Var("other", source.index_type)
    for number, (part, result, array) in enumerate(zip(accumulators, results, shared, strict=True)):
        for lane in map(source.const, range(lanes)):
            value = tirx.BufferLoad(part, [lane])
            put.append(tirx.BufferStore(array, value, [slot(lane, rows.thread)]))
        updates = [
            tirx.BufferStore(
                result,
                reduction.combiners[number](
                    tirx.BufferLoad(result, [lane]), tirx.BufferLoad(array, [slot(lane, other)])
                ),
                [lane],
            )
            for lane in map(source.const, range(lanes))
        ]
        combine.append(loop(plan.threads, sequence(updates), other))
    return results, [*put, wait, *combine]


def allreduce(
    reduction: Reduction,
    rows: Rows,
    accumulators: Sequence[Any],
    shared: Sequence[Any],
    wait: Any,
) -> tuple[list[Any], list[Any]]:
    """Combine the accumulators of the threads of a row, whose lanes lie next to each other.

    The lanes of a warp exchange theirs by shuffles, so that all get the result. Where several
    warps work on a row, each puts its part into shared memory, and after a barrier each combines
    the parts of all, by shuffles again.

    Parameters
    ----------
    reduction : Reduction
        What is reduced.
    rows : Rows
        The thread's place.
    accumulators : sequence of Buffer
        One for each value, of one element.
    shared : sequence of Buffer
        For each value the array for the parts of warps; none where a warp has a row for itself.
    wait : Stmt
        The barrier.

    Returns
    -------
    results : list of Buffer
        One for each value, of one element.
    statements : list of Stmt
        The exchange.

    Raises
    ------
    ValueError
        The threads of a row do not fill warps.
    """
    source = reduction.source
    threads, warps = source.plan.threads, source.elements.warps
    lanes = min(threads, WARP_THREADS)
    if lanes & (lanes - 1) or (threads > lanes and threads % lanes):
        raise ValueError(f"{threads} threads on a row do not fill warps")
    wide = [exchanged_as(dtype) for dtype in reduction.dtypes]
    zero = source.const(0)
    parts = reduction.allocate(1, "exchanged", wide)
    statements = [
        tirx.BufferStore(part, _as(dtype, tirx.BufferLoad(own, [zero])), [zero])
        for part, own, dtype in zip(parts, accumulators, wide, strict=True)
    ]
    statements += _shuffles(reduction, rows, parts, lanes)
    if warps > 1:
        together = 1 << (warps - 1).bit_length()  # lanes that have the parts of all warps
        first = rows.row_in_block * warps
        warp = rows.simplify(first + rows.thread // lanes)
        theirs = rows.simplify(rows.thread % together)
        puts = [
            tirx.BufferStore(array, tirx.BufferLoad(part, [zero]), [warp])
            for array, part in zip(shared, parts, strict=True)
        ]
        statements += [tirx.IfThenElse(rows.thread % lanes < 1, sequence(puts), None), wait]
        for part, array, start in zip(parts, shared, reduction.initials, strict=True):
            read: Any = tirx.BufferLoad(array, [rows.simplify(first + theirs)])
            if warps < together:
                read = tirx.if_then_else(theirs < warps, read, _as(str(part.dtype), start))
            statements.append(tirx.BufferStore(part, read, [zero]))
        statements += _shuffles(reduction, rows, parts, together)
    results = reduction.allocate(1, "total")
    statements += [
        tirx.BufferStore(result, _as(dtype, tirx.BufferLoad(part, [zero])), [zero])
        for result, part, dtype in zip(results, parts, reduction.dtypes, strict=True)
    ]
    return results, statements


def _shuffles(reduction: Reduction, rows: Rows, parts: Sequence[Any], lanes: int) -> list[Any]:
    """Combine what groups of neighbouring lanes have: pairs of lanes swap, then pairs of pairs.

    All lanes get the same result to the last bit, since each combines the same two at each step.
    """
    zero, mask = reduction.source.const(0), _mask(rows)
    made = []
    distance = lanes // 2
    while distance:
        for part, combiner in zip(parts, reduction.combiners, strict=True):
            own = tirx.BufferLoad(part, [zero])
            other = tirx.call_intrin(
                str(part.dtype),
                "tirx.tvm_warp_shuffle_xor",
                mask,
                own,
                tirx.IntImm("int32", distance),
                tirx.IntImm("int32", WARP_THREADS),
                tirx.IntImm("int32", WARP_THREADS),
            )
            made.append(tirx.BufferStore(part, combiner(own, other), [zero]))
        distance //= 2
    return made


def _mask(rows: Rows) -> Any:
    """The lanes of the calling thread's warp: all, unless the last warp of a block is not full."""
    threads = rows.source.plan.threads_per_block
    rest = threads % WARP_THREADS
    whole, part = (tirx.const((1 << n) - 1, "uint32") for n in (WARP_THREADS, rest))
    if not rest:
        return whole
    if threads < WARP_THREADS:
        return part
    return tirx.Select(rows.linear_thread() < threads - rest, whole, part)


def _as(dtype: str, value: Any) -> Any:
    return value if str(value.ty.dtype) == dtype else tirx.Cast(dtype, value)
