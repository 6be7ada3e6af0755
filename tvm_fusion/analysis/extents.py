"""Extents as products of a number and symbolic variables.

Row counts are often symbolic (batch, sequence), and reshapes multiply them. All that planning asks
of an extent is whether it divides another and what the quotient is, which products answer.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from .blocks import static_int

#: What a symbol counts as where sizes are compared or work is estimated.
_SYMBOL = 128


@dataclass(frozen=True)
class Extent:
    """``number`` times the product of ``symbols`` (sorted, with repetition).

    Parameters
    ----------
    number : int
        The constant factor, at least 1.
    symbols : tuple of str
        Names of symbolic factors, as :class:`Symbols` gives them.
    """

    number: int
    symbols: tuple[str, ...] = ()

    @property
    def static(self) -> int | None:
        """The value, or None where it is symbolic."""
        return None if self.symbols else self.number

    @property
    def is_one(self) -> bool:
        """Whether it is the constant 1."""
        return self.number == 1 and not self.symbols

    def __mul__(self, other: Extent) -> Extent:
        if not self.symbols or not other.symbols:
            return Extent(self.number * other.number, self.symbols or other.symbols)
        return Extent(self.number * other.number, tuple(sorted((*self.symbols, *other.symbols))))

    def divides(self, other: Extent) -> bool:
        """Whether ``other`` is a multiple of this one for all values of the symbols."""
        if other.number % self.number:
            return False
        return not self.symbols or _take(other.symbols, self.symbols) is not None

    def __floordiv__(self, other: Extent) -> Extent:
        left = _take(self.symbols, other.symbols) if other.symbols else self.symbols
        if self.number % other.number or left is None:
            raise ValueError(f"{self} is no multiple of {other}")
        return Extent(self.number // other.number, left)

    def order(self) -> tuple[int, int]:
        """Sorts a chain in which each divides the next."""
        return (len(self.symbols), self.number)

    def at_most(self, other: Extent) -> bool:
        """Whether it is known to be no larger than ``other`` (symbols are at least 1)."""
        return self.number <= other.number and _take(other.symbols, self.symbols) is not None

    def estimate(self) -> int:
        """The value with every symbol taken as 128."""
        return self.number * _SYMBOL ** len(self.symbols)

    def renamed(self, names: Mapping[str, Extent]) -> Extent:
        """The extent with symbols replaced."""
        if not self.symbols:
            return self
        parts = (names.get(s, Extent(1, (s,))) for s in self.symbols)
        return functools.reduce(Extent.__mul__, parts, Extent(self.number))

    def __str__(self) -> str:
        if not self.symbols:
            return str(self.number)
        factors = list(self.symbols) if self.number == 1 else [str(self.number), *self.symbols]
        return "*".join(factors)


ONE = Extent(1)


def _take(symbols: tuple[str, ...], some: tuple[str, ...]) -> tuple[str, ...] | None:
    """``symbols`` without ``some``, or None where one of these is missing."""
    if not some:
        return symbols
    left = list(symbols)
    for symbol in some:
        if symbol not in left:
            return None
        left.remove(symbol)
    return tuple(left)


def product(extents: Any) -> Extent:
    """The product of some extents."""
    return functools.reduce(Extent.__mul__, extents, ONE)


class Symbols:
    """Names of the symbolic extents of one function, each variable and expression its own."""

    def __init__(self) -> None:
        self._names: dict[Any, str] = {}
        #: The expression that each name stands for.
        self.expressions: dict[str, Any] = {}

    def extent(self, expr: Any) -> Extent:
        """Read an extent off an expression; what is no product becomes a symbol of its own."""
        value = static_int(expr)
        if value is not None:
            return Extent(value)
        if isinstance(expr, tirx.Mul):
            return self.extent(expr.a) * self.extent(expr.b)
        if isinstance(expr, tirx.Cast):
            return self.extent(expr.value)
        return Extent(1, (self._name(expr),))

    def _name(self, expr: Any) -> str:
        key = expr if isinstance(expr, tirx.Var) else str(expr)
        if key not in self._names:
            wanted = expr.name if isinstance(expr, tirx.Var) else f"({expr})"
            name, count = wanted, 0
            while name in self.expressions:
                count += 1
                name = f"{wanted}.{count}"
            self._names[key] = name
            self.expressions[name] = expr
        return self._names[key]
