"""The pass that schedules: one kernel of each group, TVM's own kernels of single ops."""

from __future__ import annotations

import warnings
from dataclasses import replace

import tvm
from tvm import tirx

from ..analysis.bindings import other_device
from ..analysis.relax_graph import GROUP_ATTR
from ..codegen import KernelFigures
from ..limits import Limits
from ..planning import Plan, PlanSettings, read_plans, read_settings
from ..trace import KernelRecord, Trace, current_trace, phase
from .feedback import make_feedback
from .kernels import Attempt, KernelTrial


@tvm.transform.module_pass(opt_level=0, name="tvm_fusion.Schedule")
class Schedule:
    """Schedule every unscheduled PrimFunc for the current CUDA target, and mark what is finished.

    What is finished carries the attributes ``tvm_fusion.group`` and ``op_pattern = 8`` afterwards,
    so that a later pipeline neither merges it again nor drops its schedule. Under another target
    than CUDA, or under none, nothing is scheduled; groups are marked all the same.

    Parameters
    ----------
    limits : Limits, optional
        Budgets of a kernel; those that FuseOps had, where nothing is given.

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
        self.limits = limits

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        """Run the pass; ``mod`` itself is left as it is."""
        target = tvm.target.Target.current(allow_none=True)
        settings = read_settings(mod) or PlanSettings(Limits())
        if self.limits is not None:
            settings = replace(settings, limits=self.limits)
        scheduler = _Scheduler(read_plans(mod), settings, target)
        functions = {}
        with phase("Schedule"):
            for gvar, func in mod.functions.items():
                if isinstance(func, tirx.PrimFunc):
                    func = scheduler.function(gvar.name_hint, func)
                functions[gvar] = func
        trace = current_trace()
        if trace is not None:
            scheduler.record(trace)
        return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


class _Scheduler:
    def __init__(
        self, plans: dict[str, Plan], settings: PlanSettings, target: tvm.target.Target | None
    ) -> None:
        self.plans = plans
        on_cuda = target is not None and target.kind.name == "cuda"
        self.trial = KernelTrial(target, settings.limits) if on_cuda else None
        self.feedback = make_feedback(settings.feedback, self.trial, settings.limits, quiet=True)
        self.made: dict[str, Attempt] = {}
        self.trace: Trace | None = current_trace()

    def function(self, name: str, func: tirx.PrimFunc) -> tirx.PrimFunc:
        attrs = func.attrs or {}
        if attrs.get("tirx.is_scheduled") or other_device(func):
            return func
        is_group = name in self.plans or GROUP_ATTR in attrs
        made = self._schedule(name, func, is_group) if self.trial is not None else func
        if is_group or made is not func:
            made = made.with_attr(GROUP_ATTR, name).with_attr("op_pattern", 8)
        return made

    def _schedule(self, name: str, func: tirx.PrimFunc, is_group: bool) -> tirx.PrimFunc:
        assert self.trial is not None
        plan = self.plans[name].kernel if name in self.plans else None
        attempt = self.trial.try_group(func, plan)
        if plan is None and attempt.kernel is not None and self.feedback is not None:
            attempt = self.feedback.judge(name, func, attempt).attempt
        if attempt.kernel is None:
            if is_group:
                why = attempt.reason.message if attempt.reason else "no schedule"
                self._note(f"group {name} is not one kernel: {why}", warn=True)
            attempt = self.trial.try_op(func)
        if attempt.kernel is None:
            why = attempt.reason.message if attempt.reason else "no schedule"
            self._note(f"{name} is left unscheduled and would run on the host: {why}", warn=True)
            return func
        if attempt.kernel.kernels > 1:
            self._note(f"{name} takes {attempt.kernel.kernels} kernels ({attempt.kernel.rule})")
        self.made[name] = attempt
        scheduled = attempt.kernel.func
        for key, value in (func.attrs or {}).items():
            if key not in scheduled.attrs:
                scheduled = scheduled.with_attr(key, value)
        return scheduled

    def record(self, trace: Trace) -> None:
        """Put the kernels and their figures into a trace."""
        attempts = list(self.made.values())
        figures: list[KernelFigures | None] = [None] * len(attempts)
        if self.feedback is not None:
            figures = self.feedback.figures(attempts)
            trace.feedback += self.feedback.steps
        for name, attempt, found in zip(self.made, attempts, figures, strict=True):
            if attempt.kernel is not None:
                cuda = attempt.text.source if attempt.text is not None else ""
                kernel = attempt.kernel
                trace.kernels[name] = KernelRecord(kernel.rule, kernel.plan, found, cuda)

    def _note(self, text: str, warn: bool = False) -> None:
        if self.trace is not None:
            self.trace.notes.append(text)
        if warn:
            warnings.warn(text, stacklevel=2)
