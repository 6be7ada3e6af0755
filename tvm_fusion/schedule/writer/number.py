"""Numbers put together from loop variables, so that division leaves no division behind.

The point at which a thread stands is ``(step * threads + thread) * vector + lane``. Dividing it by
an extent of a tensor splits this list of parts; what arithmetic simplification would have to find
out again is known here by construction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx


@dataclass(frozen=True)
class Part:
    """``value * stride`` with ``0 <= value < extent``; an extent of None is not known."""

    value: Any
    stride: int
    extent: int | None


@dataclass(frozen=True)
class Number:
    """A sum of parts, each smaller than the stride of the next.

    Parameters
    ----------
    parts : tuple of Part
        From the smallest stride to the largest.
    index_type : str
        Type of the expression.
    """

    parts: tuple[Part, ...]
    index_type: str

    @staticmethod
    def of(value: Any, extent: int | None, index_type: str) -> Number:
        """A number that is a single value."""
        return Number((Part(value, 1, extent),), index_type)

    @staticmethod
    def chain(values: Sequence[tuple[Any, int | None]], index_type: str) -> Number:
        """Values with their extents, the fastest first: digits in mixed radix."""
        parts, stride = [], 1
        for value, extent in values:
            parts.append(Part(value, stride, extent))
            stride *= extent or 1
        return Number(tuple(parts), index_type)

    def expression(self) -> Any:
        """The sum."""
        total: Any = None
        for part in self.parts:
            if _is_zero(part.value):
                continue
            term = part.value if part.stride == 1 else part.value * part.stride
            total = term if total is None else term + total
        return tirx.IntImm(self.index_type, 0) if total is None else total

    def split(self, at: int) -> tuple[Number, Number]:
        """The remainder and the quotient of a division by ``at``."""
        low: list[Part] = []
        high: list[Part] = []
        for part in self.parts:
            if part.stride % at == 0:
                high.append(Part(part.value, part.stride // at, part.extent))
            elif part.extent is not None and part.stride * part.extent <= at:
                low.append(part)
            elif at % part.stride == 0:
                inside = at // part.stride
                low.append(Part(part.value % inside, part.stride, inside))
                above = None if part.extent is None else -(-part.extent // inside)
                high.append(Part(part.value // inside, 1, above))
            else:
                return self._divided(at)
        if sum(p.stride * ((p.extent or 1) - 1) for p in low) >= at:
            return self._divided(at)
        return Number(tuple(low), self.index_type), Number(tuple(high), self.index_type)

    def _divided(self, at: int) -> tuple[Number, Number]:
        """The same where no part begins or ends there: those above the division become one."""
        below: list[Part] = []
        rest = list(self.parts)
        while len(rest) > 1 and at % rest[1].stride == 0 and rest[1].stride < at:
            below.append(rest.pop(0))
        stride = rest[0].stride
        if at % stride or any(part.stride % stride for part in rest):
            below, rest, stride = [], list(self.parts), 1
        inside = at // stride
        scaled = tuple(Part(p.value, p.stride // stride, p.extent) for p in rest)
        value = Number(scaled, self.index_type).expression()
        low = Number((*below, Part(value % inside, stride, inside)), self.index_type)
        return low, Number.of(value // inside, None, self.index_type)


def _is_zero(value: Any) -> bool:
    return isinstance(value, tirx.IntImm) and int(value.value) == 0
