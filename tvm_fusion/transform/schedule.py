"""The pass that schedules: one kernel of each group, TVM's own kernels of single ops."""

from __future__ import annotations

import time
import warnings

import tvm
from tvm import tirx

from ..analysis.relax_graph import GROUP_ATTR
from ..limits import Limits
from ..planning import Plan, read_plans
from ..trace import Trace, current_trace
from .kernels import KernelTrial


@tvm.transform.module_pass(opt_level=0, name="tvm_fusion.Schedule")
class Schedule:
    """Schedule every unscheduled PrimFunc for the current CUDA target, and mark what is finished.

    Groups (functions that ``tvm_fusion.plans`` knows) carry the attributes ``tvm_fusion.group``
    and ``op_pattern = 8`` afterwards, so that a later pipeline neither merges them again nor drops
    their schedule. Under another target, or under none, nothing is scheduled; groups are marked all
    the same.

    Parameters
    ----------
    limits : Limits, optional
        Budgets of a kernel.

    Examples
    --------
    Before::

        @T.prim_func(private=True)
        def fused_exp_add(...):
            for i, j in T.grid(8, 16): ...

    After::

        @T.prim_func(private=True)
        def fused_exp_add(...):
            T.func_attr({"op_pattern": 8, "tirx.is_scheduled": True, "tvm_fusion.group": "..."})
            for i_j_fused in T.thread_binding(...): ...
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        """Run the pass; ``mod`` itself is left as it is."""
        started = time.perf_counter()
        target = tvm.target.Target.current(allow_none=True)
        scheduler = _Scheduler(read_plans(mod), self.limits, target)
        functions = {}
        for gvar, func in mod.functions.items():
            if isinstance(func, tirx.PrimFunc):
                func = scheduler.function(gvar.name_hint, func)
            functions[gvar] = func
        trace = current_trace()
        if trace is not None:
            trace.seconds["Schedule"] = time.perf_counter() - started
        return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


class _Scheduler:
    def __init__(
        self, plans: dict[str, Plan], limits: Limits, target: tvm.target.Target | None
    ) -> None:
        self.plans = plans
        on_cuda = target is not None and target.kind.name == "cuda"
        self.trial = KernelTrial(target, limits) if on_cuda else None
        self.trace: Trace | None = current_trace()

    def function(self, name: str, func: tirx.PrimFunc) -> tirx.PrimFunc:
        attrs = func.attrs or {}
        if GROUP_ATTR in attrs or attrs.get("tirx.is_scheduled"):
            return func
        is_group = name in self.plans
        made = self._schedule(name, func, is_group) if self.trial is not None else func
        if is_group:
            made = made.with_attr(GROUP_ATTR, name)
        if is_group or made is not func:
            made = made.with_attr("op_pattern", 8)
        return made

    def _schedule(self, name: str, func: tirx.PrimFunc, is_group: bool) -> tirx.PrimFunc:
        assert self.trial is not None
        attempt = self.trial.try_group(func) if is_group else self.trial.try_op(func)
        if attempt.kernel is None and is_group:
            self._note(
                f"group {name} is not one kernel: {attempt.reason and attempt.reason.message}"
            )
            attempt = self.trial.try_op(func)
        if attempt.kernel is None:
            self._note(f"{name} is left unscheduled: {attempt.reason and attempt.reason.message}")
            return func
        if attempt.kernel.kernels > 1:
            self._note(f"{name} takes {attempt.kernel.kernels} kernels ({attempt.kernel.rule})")
        if self.trace is not None:
            self.trace.rules[name] = attempt.kernel.rule
        scheduled = attempt.kernel.func
        for key, value in (func.attrs or {}).items():
            if key not in scheduled.attrs:
                scheduled = scheduled.with_attr(key, value)
        return scheduled

    def _note(self, text: str) -> None:
        if self.trace is not None:
            self.trace.notes.append(text)
        if "left unscheduled" in text or "not one kernel" in text:
            warnings.warn(text, stacklevel=2)
