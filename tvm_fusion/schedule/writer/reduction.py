"""Reductions: accumulators of one thread, and the exchange between the threads of a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx

from ...analysis.nest_reader import reduction_update
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

    def allocate(self, lanes: int, what: str = "partial") -> list[Any]:
        """A register for each value and lane."""
        name = self.source.group.nests[self.nest].name
        return [self.values.allocate(f"{name}_{what}", lanes, dtype) for dtype in self.dtypes]

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
    reduction: Reduction, rows: Rows, accumulators: Sequence[Any], lanes: int
) -> tuple[list[Any], Any]:
    """Combine the accumulators of all threads of a row; each gets the result.

    Returns
    -------
    results : list of Buffer
        One for each value, with an element for each lane.
    statement : tirx.Stmt
        The exchange.
    """
    source = reduction.source
    results = reduction.allocate(lanes, "total")
    pairs = [
        (a, r, lane) for a, r in zip(accumulators, results, strict=True) for lane in range(lanes)
    ]
    kinds = [n for n in range(len(accumulators)) for _ in range(lanes)]
    left = [tirx.Var(f"x{i}", reduction.dtypes[n]) for i, n in enumerate(kinds)]
    right = [tirx.Var(f"y{i}", reduction.dtypes[n]) for i, n in enumerate(kinds)]
    combined = [reduction.combiners[n](a, b) for n, a, b in zip(kinds, left, right, strict=True)]
    reducer = tirx.CommReducer(left, right, combined, [reduction.initials[n] for n in kinds])
    call = tirx.tvm_thread_allreduce(
        tirx.const(len(pairs), "uint32"),
        *[tirx.BufferLoad(a, [source.const(lane)]) for a, _, lane in pairs],
        tirx.const(True, "bool"),
        *[tirx.BufferLoad(r, [source.const(lane)]) for _, r, lane in pairs],
        rows.thread,
    )
    nowhere = tirx.reinterpret("handle", tirx.const(0, "uint64"))
    return results, tirx.AttrStmt(reducer, "reduce_scope", nowhere, tirx.Evaluate(call))
