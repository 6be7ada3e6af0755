"""A schedule rule for reductions of a whole tensor to one element."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.dlight.analysis import normalize_prim_func
from tvm.s_tir.dlight.base import try_inline
from tvm.s_tir.dlight.gpu.base import GPUScheduleRule

from ..analysis.blocks import static_int

_WARP = 32
_MAX_THREADS = 512


class FullReduction(GPUScheduleRule):
    """One thread block reduces a whole tensor; what follows is computed by its first thread.

    TVM's own rules walk the tensor with a single thread, and put what follows the reduction into
    a kernel of its own. Applies to one reduction without spatial axes, elementwise blocks before
    it and blocks of one element after it.
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
        if len(infos) not in (1, 2) or not _reduces_all(schedule, infos[0]):
            return None
        if len(infos) == 2 and not _is_scalar(schedule, infos[1]):
            return None
        reducing = infos[0].block_rv
        points = _points(schedule, reducing)
        threads = _threads(points)
        loops = schedule.get_loops(reducing)
        spatial = [lp for lp, kind in zip(loops, infos[0].dom_kind(), strict=True) if kind == "S"]
        reduced = [lp for lp, kind in zip(loops, infos[0].dom_kind(), strict=True) if kind == "R"]
        if len(infos) == 1:
            schedule.reorder(*spatial, *reduced)
            grid = schedule.fuse(*spatial) if spatial else schedule.add_unit_loop(reducing)
            if not spatial:
                reduced = schedule.get_loops(reducing)[1:]
        else:
            last = infos[1].block_rv
            outer = schedule.get_loops(last)
            grid = schedule.fuse(*outer) if outer else schedule.add_unit_loop(last)
            schedule.compute_at(reducing, grid, preserve_unit_loops=True)
            schedule.set_scope(reducing, 0, "shared")
            reduced = schedule.get_loops(reducing)[1 + len(spatial) :]
            _, first = schedule.split(schedule.add_unit_loop(last), [None, threads])
            schedule.bind(first, "threadIdx.x")
        _, lane = schedule.split(schedule.fuse(*reduced), [None, threads])
        schedule.bind(grid, "blockIdx.x")
        schedule.bind(lane, "threadIdx.x")
        return schedule


def _reduces_all(schedule: s_tir.Schedule, info: Any) -> bool:
    if not info.is_reduction():
        return False
    extents = [static_int(schedule.get(loop).extent) for loop in schedule.get_loops(info.block_rv)]
    kinds = info.dom_kind()
    return all(
        extent is not None and (kind == "R" or extent == 1)
        for extent, kind in zip(extents, kinds, strict=True)
    )


def _is_scalar(schedule: s_tir.Schedule, info: Any) -> bool:
    loops = schedule.get_loops(info.block_rv)
    return all(static_int(schedule.get(loop).extent) == 1 for loop in loops)


def _points(schedule: s_tir.Schedule, block: Any) -> int:
    total = 1
    for loop in schedule.get_loops(block):
        total *= static_int(schedule.get(loop).extent) or 1
    return total


def _threads(points: int) -> int:
    """A whole number of warps, no more than there are points."""
    threads = _WARP
    while threads < _MAX_THREADS and threads < points:
        threads *= 2
    return threads
