"""How a kernel walks the classes of its group: rows across thread blocks, the rest inside of them.

A *row* is one value of all parallel classes. Inside of it a nest walks its *local* classes, one
behind the other in an order that is the same for all nests, so that a thread which has written
some elements of an intermediate reads the same elements again.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property

from ..analysis.extents import ONE, Extent, product
from .digits import Digit, Digits


class Layout:
    """Rows and local classes of a group.

    Parameters
    ----------
    digits : Digits
        The classes of the group.
    parallel : sequence of int
        Classes that rows are numbered by, outermost first.
    local : sequence of int
        All others, outermost first.
    lane : int or None
        A class that each thread walks as the lanes of a vector; in neither of the two.
    """

    def __init__(
        self,
        digits: Digits,
        parallel: Sequence[int],
        local: Sequence[int],
        lane: int | None = None,
    ) -> None:
        self.digits = digits
        self.parallel = tuple(parallel)
        self.order = {cls: i for i, cls in enumerate(local)}
        self.lane = lane
        group = digits.group
        self.local: list[tuple[int, ...]] = []
        self.reduced: list[tuple[int, ...]] = []
        for n in range(len(group.nests)):
            self.local.append(self._ordered(digits.nest_classes(n, reduced=False)))
            self.reduced.append(self._ordered(digits.nest_classes(n, reduced=True)))

    def _ordered(self, classes: Sequence[int]) -> tuple[int, ...]:
        return tuple(sorted((c for c in classes if c in self.order), key=self.order.__getitem__))

    def size(self, classes: Sequence[int]) -> Extent:
        """Number of points that some classes have together."""
        return product(self.digits.extents[c] for c in classes)

    @cached_property
    def rows(self) -> Extent:
        """Number of rows."""
        return self.size(self.parallel)

    def points(self, nest: int) -> Extent:
        """Points of a nest in one row, reduced ones included, of all lanes."""
        rows = set(self.parallel)
        return self.size([c for c in self.digits.nest_classes(nest) if c not in rows])

    def lacks_rows(self, nest: int) -> Extent:
        """How often a nest is evaluated anew since it lacks parallel classes."""
        own = set(self.digits.nest_classes(nest))
        return self.size([c for c in self.parallel if c not in own])

    def tensor_local(self, tensor: Hashable) -> tuple[int, ...]:
        """Local classes of a tensor in order."""
        return self._ordered(self.digits.tensor_classes(tensor))


def split_class(digits: Digits, cls: int, by: int) -> int:
    """Split a class into an outer one, which keeps its number, and an inner one of extent ``by``.

    Returns
    -------
    int
        The number of the inner class.

    Raises
    ------
    ValueError
        Some digit of the class does not divide that way.
    """
    cut = Extent(by)
    inner = max(digits.extents) + 1

    def divide(digit: Digit) -> tuple[Digit, ...]:
        if digit.cls != cls:
            return (digit,)
        upper = digit.inner * digit.extent
        if cut.divides(digit.inner):
            return (Digit(cls, digit.inner // cut, digit.extent, digit.lower),)
        if upper.divides(cut):
            return (Digit(inner, digit.inner, digit.extent, digit.lower),)
        if not (digit.inner.divides(cut) and cut.divides(upper)):
            raise ValueError(f"class {cls} of extent {digits.extents[cls]} is not split by {by}")
        low = cut // digit.inner
        return (
            Digit(inner, digit.inner, low, digit.lower),
            Digit(cls, ONE, digit.extent // low, digit.lower * low),
        )

    def axis(own: tuple[Digit, ...]) -> tuple[Digit, ...]:
        return tuple(part for digit in own for part in divide(digit))

    nests = [[axis(own) for own in axes] for axes in digits.nests]
    tensors = {key: [axis(own) for own in axes] for key, axes in digits.tensors.items()}
    digits.nests, digits.tensors = nests, tensors
    digits.extents = {**digits.extents, cls: digits.extents[cls] // cut, inner: cut}
    return inner
