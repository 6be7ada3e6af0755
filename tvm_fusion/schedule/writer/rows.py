"""Index expressions: which row a thread block has, and which elements of it a thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from ...analysis.extents import ONE, Extent
from ...planning.digits import Digit
from ...planning.kernel_plan import COLUMN
from .number import Number
from .source import Source


class Rows:
    """Thread and block indices of a kernel, and the values of its parallel classes.

    Parameters
    ----------
    source : Source
        The group.
    analyzer : tvm.sym.Analyzer
        Learns the domains of the indices.
    """

    def __init__(self, source: Source, analyzer: Any) -> None:
        self.source = source
        self.analyzer = analyzer
        plan = source.plan
        kind = source.index_type
        self.block = tirx.Var("block", kind)
        self.thread = tirx.Var("thread", kind) if plan.threads > 1 else source.const(0)
        self.row_in_block = (
            tirx.Var("row_in_block", kind) if plan.rows_per_block > 1 else source.const(0)
        )
        self._bind(self.thread, plan.threads)
        self._bind(self.row_in_block, plan.rows_per_block)
        layout = source.layout
        self.count = source.extent(layout.rows)
        self.chunks: Any = source.const(1)
        chunk: Any = source.const(0)
        row_block: Any = self.block
        if plan.chunk:
            points = source.extent(layout.size(tuple(layout.order)))
            self.chunks = self.simplify((points + (plan.chunk - 1)) // plan.chunk)
            if layout.rows.is_one:
                chunk, row_block = self.block, source.const(0)
            else:
                chunk, row_block = self.block % self.chunks, self.block // self.chunks
        #: Which of the pieces of its row a block has.
        self.chunk = chunk
        several = plan.rows_per_block
        raw = row_block * several + self.row_in_block if several > 1 else row_block
        static = layout.rows.static
        self.overhangs = static % several != 0 if static is not None else several > 1
        self.raw_row = raw
        self.row = tirx.Var("row", kind)
        self.row_value = tirx.min(raw, self.count - 1) if self.overhangs else raw
        if static is not None:
            self._bind(self.row, static)
        self.grid = self.simplify(
            (
                (self.count + (several - 1)) // several
                if self.overhangs or several > 1
                else (self.count)
            )
            * self.chunks
        )
        self.values = self.decode(
            layout.parallel, Number.of(self.row, layout.rows.static, source.index_type)
        )

    def _bind(self, var: Any, extent: int) -> None:
        if isinstance(var, tirx.Var):
            zero = self.source.const(0)
            self.analyzer.bind(var, tvm.ir.Range(zero, self.source.const(extent)))

    def simplify(self, expr: Any) -> Any:
        """The expression in its simplest form."""
        return self.analyzer.simplify(expr)

    def is_live(self) -> Any | None:
        """The condition under which a thread's row exists; None: always."""
        return self.raw_row < self.count if self.overhangs else None

    def linear_thread(self) -> Any:
        """Number of the thread in its block, as the hardware counts."""
        plan = self.source.plan
        if plan.mode == COLUMN:
            return self.thread * plan.rows_per_block + self.row_in_block
        return self.row_in_block * plan.threads + self.thread

    def decode(self, classes: Sequence[int], point: Number) -> dict[int, Number]:
        """Values of classes that are numbered together, outermost first, at a point."""
        values: dict[int, Number] = {}
        rest, inside = point, ONE
        for number, cls in enumerate(reversed(classes)):
            extent = self.source.digits.extents[cls]
            outermost = number == len(classes) - 1
            if inside.symbols or (extent.symbols and not outermost):
                value = point.expression() // self.source.extent(inside)
                if not outermost:
                    value = value % self.source.extent(extent)
                values[cls] = Number.of(value, extent.static, self.source.index_type)
            elif outermost:
                values[cls] = rest
            else:
                values[cls], rest = rest.split(extent.number)
            inside = inside * extent
        return values

    def axes(self, digits: Sequence[Sequence[Digit]], values: Mapping[int, Number]) -> list[Any]:
        """The index along each axis, from the digits of the axes and the values of classes."""
        return [self._axis(own, values) for own in digits]

    def _axis(self, digits: Sequence[Digit], values: Mapping[int, Number]) -> Any:
        total: Any = None
        for digit in digits:
            value = self._digit(digit, values[digit.cls])
            if not digit.lower.is_one:
                value = value * self.source.extent(digit.lower)
            total = value if total is None else total + value
        return self.source.const(0) if total is None else self.simplify(total)

    def _digit(self, digit: Digit, number: Number) -> Any:
        """The value of a digit of a class."""
        whole = digit.inner * digit.extent == self.source.digits.extents[digit.cls]
        if digit.inner.symbols or digit.extent.symbols:
            value = number.expression()
            if not digit.inner.is_one:
                value = value // self.source.extent(digit.inner)
            return value if whole else value % self.source.extent(digit.extent)
        above = number if digit.inner.is_one else number.split(digit.inner.number)[1]
        return (above if whole else above.split(digit.extent.number)[0]).expression()

    def point_of(
        self, classes: Sequence[int], digits: Sequence[Sequence[Any]], indices: Sequence[Any]
    ) -> Any:
        """The point of some local classes at which a tensor has the element at ``indices``."""
        inside: dict[int, Extent] = {}
        size = ONE
        for cls in reversed(classes):
            inside[cls] = size
            size = size * self.source.digits.extents[cls]
        total: Any = self.source.const(0)
        for own, index in zip(digits, indices, strict=True):
            for digit in own:
                if digit.cls not in inside:
                    continue
                value = _digit_of(
                    index, self.source.extent(digit.lower), self.source.extent(digit.extent)
                )
                total = total + value * self.source.extent(inside[digit.cls] * digit.inner)
        return self.simplify(total)

    def value_of(self, cls: int, digits: Sequence[Sequence[Any]], indices: Sequence[Any]) -> Any:
        """The value of one class at which a tensor has the element at ``indices``."""
        return self.point_of((cls,), digits, indices)


def _digit_of(index: Any, lower: Any, extent: Any) -> Any:
    """``index // lower % extent``.

    An index that falls (``c - v``) is divided towards zero: where TVM lowers its floored division
    and puts the quotient and the remainder together again, it loses the constant.
    """
    if _falls(index):
        index = tirx.max(index, 0)
        return tirx.truncmod(tirx.truncdiv(index, lower), extent)
    return index // lower % extent


def _falls(index: Any) -> bool:
    """Whether a variable is subtracted somewhere in an index."""
    found: list[bool] = []
    tvm_ffi.structural_walk(
        index,
        [
            (tirx.Sub, lambda node: found.append(not isinstance(node.b, tirx.IntImm))),
            (tirx.Mul, lambda node: found.append(_is_negative(node.a) or _is_negative(node.b))),
        ],
    )
    return any(found)


def _is_negative(expr: Any) -> bool:
    return isinstance(expr, tirx.IntImm) and int(expr.value) < 0
