"""Inputs that are read more than once become copies on the chip, as nests of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace

from ..analysis.extents import ONE
from ..analysis.index import Index, Term
from ..analysis.nests import Axis, Nest, Nests, TensorAccess


def inputs_read_again(group: Nests) -> tuple[Hashable, ...]:
    """Inputs that several accesses walk, none of which depends on data."""
    count: Counter[Hashable] = Counter()
    gathered: set[Hashable] = set()
    for nest in group.nests:
        for access in dict.fromkeys(nest.loads):
            count[access.tensor] += 1
            if access.gathers:
                gathered.add(access.tensor)
    return tuple(t for t in group.inputs if count[t] > 1 and t not in gathered)


def copy_key(tensor: Hashable) -> Hashable:
    """The key of the copy of an input."""
    return ("copy", tensor)


def stage_inputs(group: Nests, tensors: Sequence[Hashable]) -> Nests:
    """Put a nest in front that copies each of ``tensors``, and let all others read the copy.

    Whether a copy is kept is decided like for any other intermediate: one that every point reads
    just once is no more than a name for the input.
    """
    if not tensors:
        return group
    copied = set(tensors)
    copies = []
    for tensor in tensors:
        shape = group.tensors[tensor].shape
        indices = tuple(
            Index((), variables=(a,))
            if extent.is_one
            else Index((Term(ONE, a, ONE, extent),), variables=(a,))
            for a, extent in enumerate(shape)
        )
        copies.append(
            Nest(
                name=f"copy_{tensor}",
                axes=tuple(Axis(extent, False) for extent in shape),
                stores=(TensorAccess(copy_key(tensor), indices),),
                loads=(TensorAccess(tensor, indices),),
                cost=0.0,
                copies=True,
            )
        )

    def access(old: TensorAccess) -> TensorAccess:
        return replace(old, tensor=copy_key(old.tensor)) if old.tensor in copied else old

    nests = tuple(replace(n, loads=tuple(map(access, n.loads))) for n in group.nests)
    made = {copy_key(tensor): group.tensors[tensor] for tensor in tensors}
    return Nests((*copies, *nests), {**group.tensors, **made}, group.inputs, group.outputs)
