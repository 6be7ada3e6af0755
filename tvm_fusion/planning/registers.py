"""An estimate of the registers that a thread of a planned kernel takes.

The weights are a fit to what nvrtc 13.0 makes of some 550 kernels of ours, of the workloads, of
rows of many lengths and of named groups, for ``sm_80`` and ``sm_90``; ``docs/resources.md`` says
how far off they are. Kernels differ by more than plans do: ptxas takes registers where it finds
some free, and spares them where that makes room for another thread block.
"""

from __future__ import annotations

from .elements import Elements
from .reuse import Reuse, ReuseDecision, accesses_of_kept

#: Addresses, indices and temporaries. Pointwise kernels divide their index more often.
_OF_POINTWISE = 15.0
_OF_REDUCING = 7.0

#: For each word that a thread holds at once, and each tensor.
_OF_WORD = 0.95
_OF_TENSOR = 1.4

#: For each axis that rows are numbered by: a division.
_OF_PARALLEL_AXIS = 2.7

#: For each element of an unrolled walk, which ptxas interleaves; more where a function like exp is
#: evaluated for it, much more in 16 bits, where the function is computed in 32.
_OF_ELEMENT = 0.35
_OF_SPECIAL = 0.45
_OF_SPECIAL_HALF = 1.6
_MOST_ELEMENTS = 32
_MOST_SPECIAL = 16
_SPECIAL_COST = 8.0

#: For each load in flight where a thread reduces by itself.
_OF_SERIAL_LOAD = 0.75
_MOST_SERIAL_TURNS = 16
_FEW_SERIAL_TURNS = 4

#: Elements of a walk that are unrolled at most: more, and the loop stays one.
_UNROLLED = 64

_HALVES = ("float16", "bfloat16")


def estimate_registers(
    decision: ReuseDecision, reuse: Reuse, elements: Elements, held_words: float
) -> int:
    """Registers of one thread.

    Parameters
    ----------
    decision : ReuseDecision
        The group and its layout.
    reuse : Reuse
        What is kept.
    elements : Elements
        The threads.
    held_words : float
        Words of elements that a thread holds at once, narrow types packed.
    """
    group, layout = decision.group, decision.layout
    reads: dict[int, list[tuple[int, object]]] = {}
    for root, nest, access, _, _ in accesses_of_kept(decision, reuse.kept):
        reads.setdefault(root, []).append((nest, access.tensor))
    unrolled = special = special_half = serial = 0
    for root, accesses in reads.items():
        count = _unrolled(elements, layout.local[root] or layout.reduced[root])
        unrolled = max(unrolled, count)
        if max(group.nests[n].cost for n in (root, *(n for n, _ in accesses))) >= _SPECIAL_COST:
            if any(group.tensors[tensor].dtype in _HALVES for _, tensor in accesses):
                special_half = max(special_half, count)
            else:
                special = max(special, count)
        if layout.local[root] and layout.reduced[root]:
            turns = layout.size(layout.reduced[root]).number
            turns = turns if turns <= _MOST_SERIAL_TURNS else _FEW_SERIAL_TURNS
            serial = max(serial, turns * len({tensor for _, tensor in accesses}))
    reduces = any(group.nests[n].reduces for n in reuse.kept)
    return round(
        (_OF_REDUCING if reduces else _OF_POINTWISE)
        + _OF_WORD * held_words
        + _OF_TENSOR * (len(group.inputs) + len(group.outputs))
        + _OF_PARALLEL_AXIS * len(layout.parallel)
        + _OF_ELEMENT * min(unrolled, _MOST_ELEMENTS)
        + _OF_SPECIAL * min(special, _MOST_SPECIAL)
        + _OF_SPECIAL_HALF * min(special_half, _MOST_SPECIAL)
        + _OF_SERIAL_LOAD * serial
    )


def _unrolled(elements: Elements, classes: tuple[int, ...]) -> int:
    """Elements of a walk that stand next to each other in the source."""
    if not classes:
        return elements.lanes
    at_once = elements.vector(classes) * elements.lanes
    whole = elements.steps(classes) * at_once
    return whole if whole <= _UNROLLED else at_once
