"""Which axes of a group's nests and tensors are the same: unification of digits.

Every axis is cut into digits, the factors that reshapes need. Where a nest indexes an axis of a
tensor with a digit of one of its own axes, the two are the same *class*. A class that is reduced
somewhere, or that is indexed otherwise than digit by digit (a constant, ``v + 1``, a loaded value),
cannot be divided among thread blocks; all others that every output has are *parallel axes*.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from ..analysis.extents import ONE, Extent
from ..analysis.index import Index
from ..analysis.nests import Nests, TensorAccess
from .unification import Unification


@dataclass(frozen=True)
class Digit:
    """A factor of an axis: ``(class value // inner) % extent`` times ``lower``.

    Parameters
    ----------
    cls : int
        The class that it belongs to.
    inner : Extent
        Product of the factors of the class inside of this one; 1 unless classes were joined.
    extent : Extent
        Number of values.
    lower : Extent
        What one step means on the axis.
    """

    cls: int
    inner: Extent
    extent: Extent
    lower: Extent


class Digits:
    """The classes of a group.

    Parameters
    ----------
    group : Nests
        The group.

    Attributes
    ----------
    nests : list of list of tuple of Digit
        For each nest and each of its axes its digits, innermost first; unit digits left out.
    tensors : dict of tensor to list of tuple of Digit
        The same for each axis of each tensor. An axis that could not be cut has the one digit of a
        class of its own.
    extents : dict of int to Extent
        Extent of each class.
    reduced, opaque : set of int
        Classes that some nest reduces over, and that some access walks in another way.
    spoilt_by : dict of int to str
        For each opaque class the nest that made it so.
    """

    def __init__(self, group: Nests) -> None:
        self.group = group
        self.reduced: set[int] = set()
        self.opaque: set[int] = set()
        self.spoilt_by: dict[int, str] = {}
        run = Unification(group)
        run.unite()
        _read_off(self, run)
        _join_adjacent(self)

    nests: list[list[tuple[Digit, ...]]]
    tensors: dict[Hashable, list[tuple[Digit, ...]]]
    extents: dict[int, Extent]

    def nest_classes(self, nest: int, reduced: bool | None = None) -> list[int]:
        """Classes that a nest walks, each once; with ``reduced`` only those it reduces or not."""
        axes = self.group.nests[nest].axes
        return list(
            dict.fromkeys(
                digit.cls
                for axis, digits in zip(axes, self.nests[nest], strict=True)
                if reduced is None or axis.reduced == reduced
                for digit in reversed(digits)
            )
        )

    def tensor_classes(self, tensor: Hashable) -> list[int]:
        """Classes of a tensor from the outermost to the innermost, each once."""
        return list(dict.fromkeys(d.cls for axis in self.tensors[tensor] for d in reversed(axis)))

    def is_aligned(self, nest: int, access: TensorAccess) -> bool:
        """Whether an access walks every digit of the tensor by the nest's digit of its class."""
        if access.gathers:
            return False
        own = {d for axis in self.nests[nest] for d in axis}
        classes = {(d.cls, d.inner, d.extent) for d in own}
        for index, digits in zip(access.indices, self.tensors[access.tensor], strict=True):
            if not digits and not index.selected:
                continue
            if index.opaque or index.base or index.selected:
                return False
            if any((d.cls, d.inner, d.extent) not in classes for d in digits):
                return False
            if not self._walks(nest, index, digits):
                return False
        return True

    def _walks(self, nest: int, index: Index, digits: Sequence[Digit]) -> bool:
        """Whether the terms of an index are just the digits, class by class."""
        wanted = {(d.lower, d.cls, d.inner, d.extent) for d in digits}
        found = set()
        for term in index.terms:
            for d in self.nests[nest][term.var]:
                if (
                    d.lower.divides(term.lower)
                    and d.lower != term.lower
                    and d.lower.order() < (term.lower.order())
                ):
                    continue  # below this term
                if not term.lower.divides(d.lower) or not (d.lower * d.extent).divides(term.upper):
                    continue
                scaled = term.coefficient * (d.lower // term.lower)
                found.add((scaled, d.cls, d.inner, d.extent))
        return wanted == found


def _read_off(digits: Digits, run: Unification) -> None:
    """Number the classes and write down the digits of every nest and tensor."""
    numbers: dict[int, int] = {}
    digits.extents = {}

    def number(node: int) -> int:
        root = run.find(node)
        if root not in numbers:
            numbers[root] = len(numbers)
            digits.extents[numbers[root]] = run.node_extent[node]
        return numbers[root]

    def of_space(space: int) -> tuple[Digit, ...]:
        return tuple(
            Digit(number(node), ONE, upper // lower, lower)
            for lower, upper, node in run.digits[space]
            if lower != upper
        )

    group = digits.group
    digits.nests = [
        [of_space(run.space[(True, n, a)]) for a in range(len(nest.axes))]
        for n, nest in enumerate(group.nests)
    ]
    digits.tensors = {
        key: [of_space(run.space[(False, key, a)]) for a in range(len(tensor.shape))]
        for key, tensor in group.tensors.items()
    }
    for node, name in run.opaque_nodes.items():
        digits.opaque.add(number(node))
        digits.spoilt_by.setdefault(number(node), name)
    for nest, own_axes in zip(group.nests, digits.nests, strict=True):
        for loop, own in zip(nest.axes, own_axes, strict=True):
            if loop.reduced:
                digits.reduced.update(d.cls for d in own)


def _join_adjacent(digits: Digits) -> None:
    """Make one class of two that always lie next to each other: ``(b, s, C)`` is ``b*s`` rows."""
    inner_to_outer: dict[int, set[int | None]] = {}
    outer_to_inner: dict[int, set[int | None]] = {}
    for axes in digits.tensors.values():
        flat: list[int] = []
        for axis in reversed(axes):
            flat.extend(d.cls for d in axis)
        for inner, outer in zip([None, *flat], [*flat, None], strict=True):
            if inner is not None:
                inner_to_outer.setdefault(inner, set()).add(outer)
            if outer is not None:
                outer_to_inner.setdefault(outer, set()).add(inner)
    walked: dict[int, set[tuple[int, bool]]] = {}
    for n, (nest, own_axes) in enumerate(zip(digits.group.nests, digits.nests, strict=True)):
        for loop, own in zip(nest.axes, own_axes, strict=True):
            for d in own:
                walked.setdefault(d.cls, set()).add((n, loop.reduced))
    outer_of: dict[int, int] = {}
    for inner, outers in inner_to_outer.items():
        outer = next(iter(outers)) if len(outers) == 1 else None
        if outer is None or outer == inner or outer_to_inner[outer] != {inner}:
            continue
        if {inner, outer} & digits.opaque or walked.get(inner) != walked.get(outer):
            continue
        outer_of[inner] = outer
    place: dict[int, tuple[int, Extent]] = {}  # class -> (joined class, product inside of it)
    for start in digits.extents:
        if start in outer_of.values():
            continue
        inside, current, seen = ONE, start, {start}
        place[start] = (start, ONE)
        while current in outer_of and outer_of[current] not in seen:
            inside = inside * digits.extents[current]
            current = outer_of[current]
            seen.add(current)
            place[current] = (start, inside)
    extents: dict[int, Extent] = {}
    for cls, (joined, _) in place.items():
        extents[joined] = extents.get(joined, ONE) * digits.extents[cls]

    def moved(axis: tuple[Digit, ...]) -> tuple[Digit, ...]:
        return tuple(
            Digit(place[d.cls][0], place[d.cls][1], d.extent, d.lower) if d.cls in place else d
            for d in axis
        )

    for cls in digits.extents:
        if cls not in place:
            extents[cls] = digits.extents[cls]
    digits.extents = extents
    digits.nests = [[moved(axis) for axis in axes] for axes in digits.nests]
    digits.tensors = {key: [moved(axis) for axis in axes] for key, axes in digits.tensors.items()}
    digits.reduced = {place[c][0] if c in place else c for c in digits.reduced}
