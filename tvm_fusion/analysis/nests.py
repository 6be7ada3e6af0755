"""The blocks of a PrimFunc as planning sees them: axes, what is read and written where, and cost.

Read once for each distinct PrimFunc; a group is planned from the nests of its ops, renamed.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from .blocks import (
    element_bytes,
)
from .extents import Extent, product
from .index import Index


@dataclass(frozen=True)
class Axis:
    """An iteration variable of a block."""

    extent: Extent
    reduced: bool


@dataclass(frozen=True)
class TensorAccess:
    """A load or store.

    Parameters
    ----------
    tensor : hashable
        Which tensor: a number within a PrimFunc, any key within a group.
    indices : tuple of Index
        One for each axis of the tensor.
    guarded : bool
        It happens under a condition, outside of which the index may lie beyond the tensor.
    gathers : bool
        An index was itself loaded from a tensor.
    """

    tensor: Hashable
    indices: tuple[Index, ...]
    guarded: bool = False
    gathers: bool = False


@dataclass(frozen=True)
class Tensor:
    """A tensor that nests read or write."""

    shape: tuple[Extent, ...]
    dtype: str

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return element_bytes(self.dtype)


@dataclass(frozen=True)
class Nest:
    """One block.

    Parameters
    ----------
    name : str
        The block's.
    axes : tuple of Axis
        Its iteration variables.
    stores : tuple of TensorAccess
        One, or several for a reduction of several values at once.
    loads : tuple of TensorAccess
        In the order of the expression, what the block itself wrote left out.
    cost : float
        Arithmetic of one evaluation, in additions.
    copies : bool
        It stores a loaded value as it is.
    """

    name: str
    axes: tuple[Axis, ...]
    stores: tuple[TensorAccess, ...]
    loads: tuple[TensorAccess, ...]
    cost: float
    copies: bool

    @property
    def reduces(self) -> bool:
        """Whether it has an axis to reduce over."""
        return any(axis.reduced for axis in self.axes)


@dataclass(frozen=True)
class Nests:
    """The nests of a PrimFunc, or of a group.

    Parameters
    ----------
    nests : tuple of Nest
        In order.
    tensors : mapping of hashable to Tensor
        Every tensor that they touch.
    inputs, outputs : tuple of hashable
        Tensors in global memory that they read only, and that they write.
    """

    nests: tuple[Nest, ...]
    tensors: Mapping[Hashable, Tensor]
    inputs: tuple[Hashable, ...]
    outputs: tuple[Hashable, ...]

    def roots(self) -> list[int]:
        """Nests that reduce or make an output: their results exist whatever is inlined."""
        made = set(self.outputs)
        return [
            n
            for n, nest in enumerate(self.nests)
            if nest.reduces or any(store.tensor in made for store in nest.stores)
        ]


class Unreadable(Exception):
    """A PrimFunc that is not a sequence of plain blocks; the text says what is in the way."""


def rename(
    nests: Nests, tensors: Mapping[Hashable, Hashable], symbols: Mapping[str, Extent]
) -> Nests:
    """The nests with other names for tensors and symbolic extents.

    Parameters
    ----------
    nests : Nests
        What to rename.
    tensors : mapping
        The new key of every tensor.
    symbols : mapping of str to Extent
        The value of symbols.
    """

    def access(old: TensorAccess) -> TensorAccess:
        indices = tuple(i.renamed(symbols) for i in old.indices) if symbols else old.indices
        return TensorAccess(tensors[old.tensor], indices, old.guarded, old.gathers)

    def nest(old: Nest) -> Nest:
        axes = tuple(Axis(a.extent.renamed(symbols), a.reduced) for a in old.axes)
        return replace(
            old,
            axes=axes if symbols else old.axes,
            stores=tuple(map(access, old.stores)),
            loads=tuple(map(access, old.loads)),
        )

    return Nests(
        tuple(map(nest, nests.nests)),
        {
            tensors[key]: Tensor(tuple(e.renamed(symbols) for e in t.shape), t.dtype)
            for key, t in nests.tensors.items()
        },
        tuple(dict.fromkeys(tensors[key] for key in nests.inputs)),
        tuple(tensors[key] for key in nests.outputs),
    )


def bind_symbols(nests: Nests, shapes: Sequence[Sequence[Extent]], owner: str) -> dict[str, Extent]:
    """What the symbolic extents of a PrimFunc are for its caller.

    Parameters
    ----------
    nests : Nests
        As :func:`read_nests` has them.
    shapes : sequence of sequence of Extent
        The shapes that the caller passes for the first tensors; empty where unknown.
    owner : str
        Goes into the names of symbols that no shape tells.
    """
    known: dict[str, Extent] = {}
    pairs = [
        pair
        for number, shape in enumerate(shapes)
        for pair in zip(nests.tensors[number].shape, shape, strict=False)
    ]
    for extent, value in sorted(pairs, key=lambda pair: len(pair[0].symbols)):
        unknown = [symbol for symbol in extent.symbols if symbol not in known]
        factor = product([Extent(extent.number), *(known[s] for s in extent.symbols if s in known)])
        if not unknown or not factor.divides(value):
            continue
        left = value // factor
        if len(unknown) == 1:
            known[unknown[0]] = left
        elif left.number == 1 and len(left.symbols) == len(unknown):
            known.update(zip(unknown, (Extent(1, (s,)) for s in left.symbols), strict=True))
    extents = [e for tensor in nests.tensors.values() for e in tensor.shape]
    extents += [axis.extent for nest in nests.nests for axis in nest.axes]
    for symbol in dict.fromkeys(s for extent in extents for s in extent.symbols):
        known.setdefault(symbol, Extent(1, (f"{owner}.{symbol}",)))
    return known


def concatenate(parts: Iterable[Nests], outputs: Collection[Hashable]) -> Nests:
    """The nests of a group from those of its members.

    Parameters
    ----------
    parts : iterable of Nests
        The members, in topological order.
    outputs : collection of hashable
        Tensors that are read outside of the group.
    """
    every: list[Nest] = []
    tensors: dict[Hashable, Tensor] = {}
    read: dict[Hashable, None] = {}
    made: dict[Hashable, None] = {}
    for part in parts:
        every += part.nests
        tensors.update(part.tensors)
        read.update(dict.fromkeys(part.inputs))
        made.update(dict.fromkeys(part.outputs))
    nests = tuple(every[n] for n in live(every, outputs))
    loaded = {load.tensor for nest in nests for load in nest.loads}
    return Nests(
        nests,
        tensors,
        tuple(t for t in read if t not in made and t in loaded),
        tuple(t for t in made if t in outputs),
    )


def live(nests: Sequence[Nest], outputs: Iterable[Hashable]) -> list[int]:
    """Numbers of the nests whose result is an output, or is read for one."""
    wanted = set(outputs)
    found = []
    for n in reversed(range(len(nests))):
        if any(store.tensor in wanted for store in nests[n].stores):
            found.append(n)
            wanted.update(load.tensor for load in nests[n].loads)
    return found[::-1]
