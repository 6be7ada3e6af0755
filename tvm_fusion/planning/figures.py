"""The figures of a kernel: bytes, arithmetic, and how much of it is done again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from ..analysis.extents import product
from .fit import Fit
from .kernel_plan import INLINE, SCALAR, KernelPlan
from .reuse import accesses_of_kept


def make_plan(staged: Sequence[int], fitted: Fit) -> KernelPlan:
    """The plan of a kernel from what fits.

    Parameters
    ----------
    staged : sequence of int
        Inputs, by position, that have a nest of their own.
    fitted : Fit
        Launch shape, what is kept, and where.
    """
    decision, launch, reuse = fitted.decision, fitted.launch, fitted.reuse
    layout, group = decision.layout, decision.group
    placement = tuple(
        where if n in reuse.kept else INLINE for n, where in enumerate(fitted.storage.placement)
    )
    once, evaluated, operations = _arithmetic(fitted, placement)
    lanes = launch.vector if layout.lane is not None else 1
    longest = max((layout.points(n).number for n in decision.roots), default=1)
    return KernelPlan(
        mode=fitted.mode,
        staged=tuple(staged),
        parallel=layout.parallel,
        local=tuple(layout.order),
        lane=-1 if layout.lane is None else layout.parallel[-1],
        threads=launch.threads,
        rows_per_block=launch.rows,
        vector=launch.vector,
        chunk=launch.chunk,
        bound=launch.bound,
        placement=placement,
        block_inputs=tuple(group.inputs.index(t) for t in fitted.storage.block_inputs),
        shared_bytes=fitted.storage.shared_bytes,
        registers=fitted.storage.registers,
        rows=str(layout.rows),
        row_points=str(longest // lanes),
        bytes_read=_bytes_read(fitted),
        bytes_written=sum(_bytes(fitted, tensor) for tensor in group.outputs),
        operations=operations,
        recompute_factor=max(1.0, evaluated / once) if once else 1.0,
        notes=fitted.notes,
    )


def _arithmetic(fitted: Fit, placement: Sequence[str]) -> tuple[float, float, float]:
    """Additions if nothing were done twice, those done, and those done by all threads."""
    decision, reuse = fitted.decision, fitted.reuse
    layout = decision.layout
    rows = layout.rows.estimate()
    once = evaluated = operations = 0.0
    for n, nest in enumerate(decision.group.nests):
        points = layout.points(n).estimate()
        done = nest.cost * reuse.evaluations[n] * rows
        once += nest.cost * points * rows / layout.lacks_rows(n).estimate()
        evaluated += done
        by_all = placement[n] == SCALAR and not nest.reduces
        operations += done * (fitted.launch.threads if by_all else 1)
    return once, evaluated, operations


def _bytes_read(fitted: Fit) -> int:
    """Bytes of the inputs; one that has local classes counts for each nest that walks it."""
    decision = fitted.decision
    times: Counter[Hashable] = Counter()
    walked = {
        (root, access.tensor)
        for root, _, access, maker, _ in accesses_of_kept(decision, fitted.reuse.kept)
        if maker is None
    }
    for _, tensor in walked:
        times[tensor] += 1
    total = 0
    for tensor in decision.group.inputs:
        again = times[tensor] if decision.layout.tensor_local(tensor) else 1
        total += max(1, again) * _bytes(fitted, tensor)
    return total


def _bytes(fitted: Fit, tensor: Hashable) -> int:
    described = fitted.decision.group.tensors[tensor]
    return product(described.shape).estimate() * described.element_bytes
