"""Index expressions as sums of digits of iteration variables.

``x[(v2 * 64 + v3) // 768, v0 // s]`` is read as: for each axis of ``x`` a sum of terms
``coefficient * ((v // lower) % (upper // lower))``. What reshapes, transposes, slices, splits and
concats do to indices is of this form, with symbolic extents too; anything else is opaque.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx

from .blocks import static_int, vars_of
from .extents import ONE, Extent, Symbols


@dataclass(frozen=True)
class Term:
    """``coefficient * ((v // lower) % (upper // lower))`` of iteration variable number ``var``."""

    coefficient: Extent
    var: int
    lower: Extent
    upper: Extent

    def renamed(self, names: Mapping[str, Extent]) -> Term:
        """The term with symbolic extents replaced."""
        return Term(
            self.coefficient.renamed(names),
            self.var,
            self.lower.renamed(names),
            self.upper.renamed(names),
        )

    @property
    def extent(self) -> Extent:
        """Number of values it takes."""
        return self.upper // self.lower

    @property
    def span(self) -> Extent:
        """``coefficient * extent``: where the next term may begin."""
        return self.coefficient * self.extent


@dataclass(frozen=True)
class Index:
    """The index into one axis of a tensor.

    Parameters
    ----------
    terms : tuple of Term
        From the smallest coefficient to the largest.
    base : int
        Constant offset.
    opaque : bool
        The expression is of no such form; ``terms`` is empty then.
    variables : tuple of int
        Every iteration variable that occurs, opaque or not.
    selected : tuple of Term
        What a condition around the access decides: ``v // 32`` where a concat reads ``x[v - 32]``
        of an axis of 32 for ``v >= 32`` only.
    """

    terms: tuple[Term, ...] = ()
    base: int = 0
    opaque: bool = False
    variables: tuple[int, ...] = ()
    selected: tuple[Term, ...] = ()

    def renamed(self, names: Mapping[str, Extent]) -> Index:
        """The index with symbolic extents replaced."""
        terms = (*self.terms, *self.selected)
        if not any(t.coefficient.symbols or t.upper.symbols for t in terms):
            return self
        renamed = tuple(t.renamed(names) for t in self.terms)
        return replace(self, terms=renamed, selected=tuple(t.renamed(names) for t in self.selected))

    def stays_in(self, extent: Extent) -> bool:
        """Whether it is known to lie within an axis of that extent whatever a condition says."""
        if self.opaque or self.base < 0:
            return False
        last = self.terms[-1].span if self.terms else ONE
        chained = all(a.span.divides(b.coefficient) for a, b in itertools.pairwise(self.terms))
        if not self.base:
            return chained and last.at_most(extent)
        size = extent.static
        return chained and not last.symbols and size is not None and self.base + last.number <= size

    def within(self, extent: Extent) -> Index:
        """The index under a condition that keeps it within an axis of that extent.

        Where the extent divides both what the index ranges over and its offset, the condition
        chooses the leading digits, and those that are left are the index.
        """
        size = extent.static
        last = self.terms[-1] if self.terms else None
        if self.opaque or size is None or last is None or self.base % size:
            return self
        if last.span.at_most(extent) and not self.base:
            return self
        kept, selected = [], []
        for term in self.terms:
            if term.span.divides(extent):
                kept.append(term)
            elif extent.divides(term.coefficient):
                selected.append(term)
            elif term.coefficient.divides(extent) and extent.divides(term.span):
                cut = term.lower * (extent // term.coefficient)
                kept.append(replace(term, upper=cut))
                selected.append(replace(term, lower=cut))
            else:
                return self
        kept = [term for term in kept if not term.extent.is_one]
        return replace(self, terms=tuple(kept), base=0, selected=tuple(selected))


class IndexReader:
    """Reads the index expressions of one block.

    Parameters
    ----------
    iter_vars : sequence of tirx.Var
        The iteration variables, in order.
    extents : sequence of Extent
        Their extents.
    symbols : Symbols
        Names of the function's symbolic extents.
    analyzer : tvm.sym.Analyzer
        Knows the domains of the variables.
    """

    def __init__(
        self, iter_vars: Sequence[Any], extents: Sequence[Extent], symbols: Symbols, analyzer: Any
    ) -> None:
        self._number: Mapping[Any, int] = {var: i for i, var in enumerate(iter_vars)}
        self._extents = extents
        self._symbols = symbols
        self._analyzer = analyzer

    def read(self, expr: Any) -> Index:
        """The index that ``expr`` is."""
        number = self._number.get(expr) if isinstance(expr, tirx.Var) else None
        if number is not None:  # by far the most frequent
            return self._variable(number)
        index = self._read(self._analyzer.simplify(expr))
        used = tuple(sorted({self._number[v] for v in vars_of(expr) if v in self._number}))
        if index is None:
            return Index(opaque=True, variables=used)
        return replace(index, variables=used)

    def _variable(self, number: int) -> Index:
        extent = self._extents[number]
        terms = () if extent.is_one else (Term(ONE, number, ONE, extent),)
        return Index(terms, variables=(number,))

    def _read(self, expr: Any) -> Index | None:
        value = static_int(expr)
        if value is not None:
            return Index(base=value)
        if isinstance(expr, tirx.Var):
            number = self._number.get(expr)
            return None if number is None else self._variable(number)
        if isinstance(expr, tirx.Cast):
            return self._read(expr.value)
        if isinstance(expr, tirx.Add | tirx.Sub):
            return self._sum(expr)
        if isinstance(expr, tirx.Mul):
            return self._product(expr)
        if isinstance(expr, tirx.FloorDiv | tirx.FloorMod):
            inner = self._read(expr.a)
            divisor = self._symbols.extent(expr.b)
            if inner is None or (divisor.number < 1) or self._uses_iter_vars(expr.b):
                return None
            return _divide(inner, divisor, isinstance(expr, tirx.FloorMod))
        return None

    def _uses_iter_vars(self, expr: Any) -> bool:
        return any(v in self._number for v in vars_of(expr))

    def _sum(self, expr: Any) -> Index | None:
        left, right = self._read(expr.a), self._read(expr.b)
        if left is None or right is None:
            return None
        if isinstance(expr, tirx.Sub):
            return None if right.terms else replace(left, base=left.base - right.base)
        return _normal((*left.terms, *right.terms), left.base + right.base)

    def _product(self, expr: Any) -> Index | None:
        for side, factor in ((expr.a, expr.b), (expr.b, expr.a)):
            if self._uses_iter_vars(factor):
                continue
            inner = self._read(side)
            by = self._symbols.extent(factor)
            if inner is None or by.number < 1 or (inner.base and by.symbols):
                return None
            terms = tuple(replace(t, coefficient=t.coefficient * by) for t in inner.terms)
            return Index(terms, inner.base * by.number)
        return None


def _normal(terms: tuple[Term, ...], base: int) -> Index:
    """Sort the terms and join the digits of one variable that lie next to each other."""
    ordered = sorted(terms, key=lambda t: (t.coefficient.order(), t.var))
    joined: list[Term] = []
    for term in ordered:
        last = joined[-1] if joined else None
        if (
            last is not None
            and last.var == term.var
            and last.upper == term.lower
            and last.span == term.coefficient
        ):
            joined[-1] = replace(last, upper=term.upper)
        else:
            joined.append(term)
    return Index(tuple(joined), base)


def _divide(index: Index, divisor: Extent, remainder: bool) -> Index | None:
    """The quotient or the remainder of an index by ``divisor``."""
    above: list[Term] = []
    below: list[Term] = []
    for term in index.terms:
        if divisor.divides(term.coefficient):
            above.append(replace(term, coefficient=term.coefficient // divisor))
        elif term.span.divides(divisor):
            below.append(term)
        elif term.coefficient.divides(divisor) and divisor.divides(term.span):
            cut = term.lower * (divisor // term.coefficient)
            below.append(replace(term, upper=cut))
            above.append(Term(ONE, term.var, cut, term.upper))
        elif term.span.at_most(divisor):
            below.append(term)
        else:
            return None
    high, low = 0, index.base
    if not divisor.symbols:
        high, low = divmod(index.base, divisor.number)
    if not _below(below, low, divisor):
        return None
    return _normal(tuple(below), low) if remainder else _normal(tuple(above), high)


def _below(terms: Sequence[Term], base: int, limit: Extent) -> bool:
    """Whether the largest value of the terms and the base is smaller than ``limit``."""
    if base < 0:
        return False
    if limit.symbols or any(t.span.symbols for t in terms):
        if base:
            return False
        span = ONE
        for term in sorted(terms, key=lambda t: t.coefficient.order()):
            if not span.divides(term.coefficient):
                return False
            span = term.span
        return span.divides(limit) or span.at_most(limit)
    most = base + sum(t.coefficient.number * (t.extent.number - 1) for t in terms)
    return most < limit.number
