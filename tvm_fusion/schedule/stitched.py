"""The schedule rule that makes one kernel of a group by planning it and writing it."""

from __future__ import annotations

import logging

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.dlight.gpu.base import GPUScheduleRule

from ..analysis.nest_reader import read_nests
from ..analysis.nests import Unreadable
from ..analysis.primfunc import contracts
from ..device import Device
from ..limits import Limits
from ..planning.kernel_plan import CannotPlan, KernelPlan
from ..planning.planner import plan_kernel
from .writer import write_kernel

_LOG = logging.getLogger("tvm_fusion.schedule")


class Stitched(GPUScheduleRule):
    """One kernel of elementwise ops, index maps and reductions that have axes in common.

    Applies to PrimFuncs of plain blocks without a contraction for which
    :func:`tvm_fusion.planning.planner.plan_kernel` finds a plan. Usable in
    ``dl.ApplyDefaultSchedule(tvm_fusion.schedule.Stitched(), ...)``.

    Parameters
    ----------
    limits : Limits, optional
        Budgets of the kernel.
    plan : KernelPlan, optional
        A plan that was made of the very function before; made anew where left out or unfit.
    """

    def __init__(self, limits: Limits | None = None, plan: KernelPlan | None = None) -> None:
        self.limits = limits or Limits()
        self.given = plan
        #: The plan of the function that was scheduled last.
        self.plan: KernelPlan | None = None

    def apply(
        self, func: tirx.PrimFunc, target: tvm.target.Target, _tunable: bool
    ) -> s_tir.Schedule | None:
        """Schedule ``func``, or return None where the rule does not apply."""
        self.plan = None
        if not isinstance(func, tirx.PrimFunc) or not self.is_target_available(target):
            return None
        if contracts(func):
            return None
        device = Device.from_target(target, quiet=True)
        made = self._given(func, device) or self._planned(func, device)
        return None if made is None else s_tir.Schedule(tvm.IRModule({"main": made}))

    def _given(self, func: tirx.PrimFunc, device: Device) -> tirx.PrimFunc | None:
        if self.given is None or not _is_within(self.given, device, self.limits):
            return None
        try:
            made = write_kernel(func, self.given)
        except Exception as error:  # the plan is text that came from somewhere
            _LOG.info("the plan does not fit the function (%s): planning anew", error)
            return None
        self.plan = self.given
        return made

    def _planned(self, func: tirx.PrimFunc, device: Device) -> tirx.PrimFunc | None:
        try:
            plan = plan_kernel(
                read_nests(func),
                device.shared_memory_budget(self.limits),
                device.threads_per_block,
                device.registers_per_multiprocessor,
            )
        except (Unreadable, CannotPlan) as error:
            _LOG.info("no single kernel is planned: %s", error)
            return None
        self.plan = plan
        return write_kernel(func, plan)


def _is_within(plan: KernelPlan, device: Device, limits: Limits) -> bool:
    """Whether a plan, which may have been made elsewhere, keeps to what this device grants."""
    kernels = plan.chain()
    try:
        return all(
            0 < kernel.threads_per_block <= device.threads_per_block
            and kernel.shared_bytes <= device.shared_memory_budget(limits)
            for kernel in kernels
        )
    except TypeError:  # some figure is none
        return False
