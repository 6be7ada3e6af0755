"""Inputs that all rows, warps or steps of a thread block read: loaded once, to shared memory."""

from __future__ import annotations

from collections.abc import Hashable

from .elements import Elements
from .launch import WARP_THREADS
from .reuse import Reuse, ReuseDecision, accesses_of_kept

#: Bytes of such an input at most.
_MOST_BYTES = 16 * 1024


def block_inputs(decision: ReuseDecision, reuse: Reuse, elements: Elements) -> tuple[Hashable, ...]:
    """Inputs that a thread block would load one and the same element of more than once.

    The lanes of a warp that load an element at the same time count as one.

    Parameters
    ----------
    decision : ReuseDecision
        The group and its layout.
    reuse : Reuse
        What is kept.
    elements : Elements
        The threads.
    """
    return tuple(
        tensor
        for tensor, walks in _readers(decision, reuse).items()
        if walks is not None and _is_reloaded(decision, elements, tensor, walks)
    )


def _readers(decision: ReuseDecision, reuse: Reuse) -> dict[Hashable, set[tuple[int, ...]] | None]:
    """For each input what the kept nests walk that read it; None where some access is no walk."""
    layout = decision.layout
    found: dict[Hashable, set[tuple[int, ...]] | None] = {}
    for root, nest, access, maker, _ in accesses_of_kept(decision, reuse.kept):
        if maker is not None:
            continue
        walks = found.setdefault(access.tensor, set())
        if access.guarded or not layout.digits.is_aligned(nest, access):
            found[access.tensor] = None
        elif walks is not None:
            local, reduced = layout.local[root], layout.reduced[root]
            walks.add((*local, *reduced) if local and reduced else local or reduced)
    return found


def _is_reloaded(
    decision: ReuseDecision,
    elements: Elements,
    tensor: Hashable,
    walks: set[tuple[int, ...]],
) -> bool:
    layout, launch = decision.layout, elements.launch
    own = set(layout.digits.tensor_classes(tensor))
    local = layout.tensor_local(tensor)
    if not own <= {*layout.parallel, *layout.order}:
        return False
    if launch.chunk and local:
        return False
    size = layout.size(local).static
    itemsize = decision.group.tensors[tensor].element_bytes
    if size is None or size * itemsize > _MOST_BYTES:
        return False
    if not _is_same_in_block(decision, elements, own):
        return False
    if any(set(walk) - own for walk in walks):
        return True  # each thread would load it again at every step along the other classes
    several_warps = launch.threads * launch.rows > WARP_THREADS
    return several_warps and (launch.rows > 1 or () in walks)


def _is_same_in_block(decision: ReuseDecision, elements: Elements, own: set[int]) -> bool:
    """Whether all rows of a block have the same values of the parallel classes in ``own``."""
    layout, rows = decision.layout, elements.launch.rows
    for number, cls in enumerate(layout.parallel):
        inside = layout.size(layout.parallel[number + 1 :])
        if cls in own and inside.number % rows:
            return False
    return True
