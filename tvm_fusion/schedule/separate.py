"""The last schedule rule: every block a kernel of its own, nothing inlined."""

from __future__ import annotations

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.dlight import base
from tvm.s_tir.dlight.analysis import normalize_prim_func
from tvm.s_tir.dlight.gpu.base import GPUScheduleRule


class Separate(GPUScheduleRule):
    """Bind the spatial axes of each block to threads and leave the blocks apart.

    It takes as many kernels as there are blocks, and is right where rules that inline are not.
    Applies where every block has spatial and reduction axes only.
    """

    def apply(
        self, func: tirx.PrimFunc, target: tvm.target.Target, _tunable: bool
    ) -> s_tir.Schedule | None:
        """Schedule ``func``, or return None where the rule does not apply."""
        if not isinstance(func, tirx.PrimFunc) or not self.is_target_available(target):
            return None
        schedule = s_tir.Schedule(func)
        infos = normalize_prim_func(schedule)
        if infos is None or any("O" in info.dom_kind() for info in infos):
            return None
        for info in infos:
            block = info.block_rv
            loops = schedule.get_loops(block)
            if len(loops) != len(info.dom_kind()):
                return None
            by_kind = list(zip(loops, info.dom_kind(), strict=True))
            spatial = [loop for loop, kind in by_kind if kind == "S"]
            reduced = [loop for loop, kind in by_kind if kind == "R"]
            if not spatial:
                spatial = [schedule.add_unit_loop(block)]
            schedule.reorder(*spatial, *reduced)
            threads = base.max_threads_per_block(target)
            grid, thread = schedule.split(schedule.fuse(*spatial), [None, threads])
            schedule.bind(grid, "blockIdx.x")
            schedule.bind(thread, "threadIdx.x")
            if reduced:
                schedule.decompose_reduction(block, reduced[0])
        return schedule
