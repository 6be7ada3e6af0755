"""Where results live: in registers where threads read back what they wrote, else shared."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from .broadcast import block_inputs
from .elements import Elements
from .kernel_plan import GLOBAL, INLINE, REGISTER, SCALAR, SHARED, CannotPlan
from .launch import Launch
from .layout import Layout
from .registers import estimate_registers
from .reuse import Reuse, ReuseDecision, accesses_of_kept
from .shared import SharedArrays, SharedRequest, assign, exchanged_as

#: Registers that a kernel needs besides the elements it holds: indices, addresses, temporaries.
BASE_REGISTERS = 24

#: Registers that elements of a row may take of a thread that has the row for itself, and could not
#: share them.
SERIAL_REGISTERS = 160

#: Banks of shared memory are 4 bytes wide (CUDA C++ Programming Guide, "Shared Memory").
_BANK_BYTES = 4


@dataclass(frozen=True)
class Storage:
    """Where each nest's result lives, and what that takes.

    Parameters
    ----------
    placement : tuple of str
        One of the places of :mod:`tvm_fusion.planning.kernel_plan` for each nest.
    registers : int
        Estimated registers of one thread.
    row_registers : int
        Those of them that hold elements of rows.
    shared_bytes : int
        Shared memory of one thread block.
    block_inputs : tuple of tensor
        Inputs that a thread block loads to shared memory for all its threads.
    """

    placement: tuple[str, ...]
    registers: int
    row_registers: int
    shared_bytes: int
    block_inputs: tuple[Hashable, ...]


def readers_of_kept(
    decision: ReuseDecision, reuse: Reuse, direct: frozenset[int] = frozenset()
) -> dict[int, dict[int, bool]]:
    """For each kept nest the kept nests that read it, and whether at their own element only.

    Parameters
    ----------
    decision : ReuseDecision
        The group.
    reuse : Reuse
        What is kept.
    direct : frozenset of int
        Kept nests whose result is not read back: they are evaluated again.
    """
    found: dict[int, dict[int, bool]] = {n: {} for n in reuse.kept}
    for root, _, _, maker, own in accesses_of_kept(decision, reuse.kept, direct):
        if maker is not None and maker in found and maker not in direct and maker != root:
            found[maker][root] = found[maker].get(root, True) and own
    return found


def place(
    decision: ReuseDecision,
    reuse: Reuse,
    launch: Launch,
    columns: bool,
    register_limit: int,
    shared_limit: int,
    direct: frozenset[int] = frozenset(),
) -> Storage:
    """Place every result.

    Parameters
    ----------
    decision : ReuseDecision
        The group and its layout.
    reuse : Reuse
        What is kept.
    launch : Launch
        The threads.
    columns : bool
        As for :class:`Elements`.
    register_limit : int
        Registers that elements of rows may take of one thread; what does not fit goes to shared
        memory, the largest first.
    shared_limit : int
        Shared memory of a block, in bytes; inputs are not held there for all of it at the price of
        exceeding it.
    direct : frozenset of int
        Outputs that are never read back.
    """
    layout = decision.layout
    elements = Elements(layout, launch, columns)
    group = decision.group
    readers = readers_of_kept(decision, reuse, direct)
    placement = [INLINE] * len(group.nests)
    words: dict[int, float] = {}
    packed: dict[int, float] = {}
    for n in sorted(reuse.kept):
        if n in direct or (not readers[n] and not group.nests[n].reduces):
            placement[n] = GLOBAL
            continue
        if _is_row_value(layout, n):
            placement[n] = SCALAR
            continue
        own = launch.threads == 1 or all(
            aligned and _same_elements(layout, n, reader) for reader, aligned in readers[n].items()
        )
        if not own and len(group.nests[n].stores) > 1:
            raise CannotPlan(
                "several_values",
                f"{group.nests[n].name} reduces several values at once, which other threads read",
            )
        placement[n] = REGISTER if own else SHARED
        if own:
            held = elements.per_thread(layout.local[n]) * elements.lanes
            words[n] = held * _words(decision, n)
            packed[n] = held * _bytes(decision, n) / _BANK_BYTES
    lifetimes = lifetimes_of(readers)
    if launch.threads > 1:
        while _peak(words, lifetimes) > register_limit:
            movable = [n for n in words if layout.local[n]]
            if not movable:
                break
            largest = max(movable, key=words.__getitem__)
            del words[largest], packed[largest]
            placement[largest] = SHARED
    inputs = block_inputs(decision, reuse, elements)
    arrays = shared_arrays(decision, elements, placement, lifetimes, inputs, direct)
    if arrays.nbytes > shared_limit and inputs:
        inputs = ()  # every warp loads them for itself
        arrays = shared_arrays(decision, elements, placement, lifetimes)
    return Storage(
        tuple(placement),
        estimate_registers(decision, reuse, elements, _peak(packed, lifetimes)),
        _peak(words, lifetimes),
        arrays.nbytes,
        inputs,
    )


def lifetimes_of(readers: Mapping[int, Mapping[int, bool]]) -> dict[int, tuple[int, int]]:
    """For each kept nest its own number and that of the last kept nest that reads it."""
    return {n: (n, max(found, default=n)) for n, found in readers.items()}


def shared_arrays(
    decision: ReuseDecision,
    elements: Elements,
    placement: Sequence[str],
    lifetimes: Mapping[int, tuple[int, int]],
    inputs: Sequence[Hashable] = (),
    direct: frozenset[int] = frozenset(),
) -> SharedArrays:
    """The arrays in shared memory.

    Time is counted in halves of nests: a nest reads and writes elements in its first half, and
    threads exchange what they reduced in the second, when what the first half read for the last
    time is free.

    Parameters
    ----------
    decision : ReuseDecision
        The group.
    elements : Elements
        The threads.
    placement : sequence of str
        Where each nest's result lives.
    lifetimes : mapping of int to (int, int)
        For each kept nest the first and the last nest that needs its result.
    inputs : sequence of tensor
        Inputs that a thread block loads once for all its threads.
    direct : frozenset of int
        Outputs that are never read back.
    """
    layout, group = decision.layout, decision.group
    requests = []
    for n in sorted(lifetimes):
        dtypes = [group.tensors[store.tensor].dtype for store in group.nests[n].stores]
        if placement[n] == SHARED:
            size = elements.shared_elements(layout.local[n])
            start, end = lifetimes[n]
            requests.append(SharedRequest(n, size, dtypes[0], 2 * start, 2 * end))
        if not group.nests[n].reduces or layout.local[n]:
            continue
        if elements.exchanges:
            size = elements.shared_elements(())
        elif elements.warps > 1:
            size = elements.warps * elements.launch.rows
            dtypes = [exchanged_as(dtype) for dtype in dtypes]
        else:
            continue
        requests += [
            SharedRequest((n, number), size, dtype, 2 * n + 1, 2 * n + 1)
            for number, dtype in enumerate(dtypes)
        ]
    last = dict.fromkeys(inputs, 0)
    for root, _, access, _, _ in accesses_of_kept(decision, frozenset(lifetimes), direct):
        if access.tensor in last:
            last[access.tensor] = max(last[access.tensor], root)
    for tensor in inputs:
        size = elements.block_elements(layout.tensor_local(tensor))
        dtype = group.tensors[tensor].dtype
        requests.append(SharedRequest(("input", tensor), size, dtype, 0, 2 * last[tensor]))
    return assign(requests)


def _is_row_value(layout: Layout, nest: int) -> bool:
    """Whether a nest has one value in each row, the same for all lanes."""
    if layout.local[nest]:
        return False
    return layout.lane is None or layout.lane not in layout.digits.nest_classes(nest)


def _same_elements(layout: Layout, nest: int, reader: int) -> bool:
    """Whether the threads that read a nest's elements are those that wrote them."""
    walked = layout.local[reader]
    if layout.reduced[reader]:
        if walked:
            return not layout.local[nest]
        walked = layout.reduced[reader]
    if not layout.local[nest]:
        return True
    return layout.local[nest] == walked


def _words(decision: ReuseDecision, nest: int) -> float:
    """Registers of 32 bits for one element."""
    stores = decision.group.nests[nest].stores
    return sum(
        max(_BANK_BYTES, decision.group.tensors[s.tensor].element_bytes) / _BANK_BYTES
        for s in stores
    )


def _bytes(decision: ReuseDecision, nest: int) -> int:
    """Bytes of one element."""
    stores = decision.group.nests[nest].stores
    return sum(decision.group.tensors[s.tensor].element_bytes for s in stores)


def _peak(sizes: Mapping[int, float], lifetimes: dict[int, tuple[int, int]]) -> int:
    """The largest sum of sizes that live at the same time."""
    events: list[tuple[int, int, float]] = []
    for n, size in sizes.items():
        start, end = lifetimes[n]
        events.append((start, 1, size))
        # A thread that reads an element of its own for the last time can write in its place.
        events.append((end, 0 if end > start else 2, -size))
    most = now = 0.0
    for _, _, change in sorted(events):
        now += change
        most = max(most, now)
    return int(most + 0.999)
