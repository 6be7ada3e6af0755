"""A schedule rule for groups of reductions over short rows: one thread walks a whole row."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.dlight.analysis import normalize_prim_func
from tvm.s_tir.dlight.base import try_inline
from tvm.s_tir.dlight.gpu.base import GPUScheduleRule

from ..analysis.blocks import static_int

#: Longest row that one thread walks, in points of its largest block.
_MAX_ROW = 64

#: Rows of a thread block.
_THREADS = 128


class ShortRows(GPUScheduleRule):
    """Blocks that share their leading axes become one kernel with a thread for each row.

    What lies between the blocks stays in the thread's registers, so that nothing needs a barrier.
    Applies where every block has at least one leading axis in common with the last, and what is
    left of each is at most 64 points.
    """

    def apply(
        self, func: tirx.PrimFunc, target: tvm.target.Target, _tunable: bool
    ) -> s_tir.Schedule | None:
        """Schedule ``func``, or return None where the rule does not apply."""
        if not isinstance(func, tirx.PrimFunc) or not self.is_target_available(target):
            return None
        schedule = s_tir.Schedule(func)
        infos = normalize_prim_func(schedule)
        if infos is None:
            return None
        infos = try_inline(schedule, infos)
        blocks = [info.block_rv for info in infos]
        shared = _common_leading_loops(schedule, infos)
        if len(blocks) < 2 or not shared:
            return None
        if any(_row_points(schedule, block, shared) is None for block in blocks):
            return None
        *producers, last = blocks
        rows = schedule.fuse(*schedule.get_loops(last)[:shared])
        grid, thread = schedule.split(rows, [None, _THREADS])
        schedule.bind(grid, "blockIdx.x")
        schedule.bind(thread, "threadIdx.x")
        for block in reversed(producers):
            schedule.compute_at(block, thread, preserve_unit_loops=True)
            schedule.set_scope(block, 0, "local")
            if _points(schedule, schedule.get_loops(block)[2:]) is None:
                return None  # it needs more than its own row
        for block, info in zip(blocks, infos, strict=True):
            reduced = [
                loop
                for loop, kind in zip(
                    schedule.get_loops(block)[-len(info.iters) :], info.dom_kind(), strict=True
                )
                if kind == "R"
            ]
            if reduced:
                schedule.decompose_reduction(block, schedule.get_loops(block)[2])
        return schedule


def _common_leading_loops(schedule: s_tir.Schedule, infos: list[Any]) -> int:
    """How many leading loops are spatial and equally long in all blocks."""
    count = 0
    kinds = [info.dom_kind() for info in infos]
    loops = [
        [static_int(schedule.get(loop).extent) for loop in schedule.get_loops(info.block_rv)]
        for info in infos
    ]
    while all(
        count < len(row) and kind[count] == "S" and row[count] == loops[0][count]
        for row, kind in zip(loops, kinds, strict=True)
    ):
        if loops[0][count] is None:
            break
        count += 1
    return count


def _row_points(schedule: s_tir.Schedule, block: Any, shared: int) -> int | None:
    return _points(schedule, schedule.get_loops(block)[shared:])


def _points(schedule: s_tir.Schedule, loops: list[Any]) -> int | None:
    """Points that the loops walk, or None if that is too many or unknown."""
    total = 1
    for loop in loops:
        extent = static_int(schedule.get(loop).extent)
        if extent is None:
            return None
        total *= extent
    return total if total <= _MAX_ROW else None
