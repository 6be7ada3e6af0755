"""Acts on the compiler's figures: kernels that spill or exceed limits are scheduled otherwise."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx

from ..analysis.nest_reader import read_nests
from ..analysis.nests import Unreadable
from ..codegen import Compiler, KernelFigures, KernelText, measure_kernels, occupancy
from ..limits import Limits
from ..planning.kernel_plan import CannotPlan, KernelPlan
from ..planning.planner import plan_kernel
from ..planning.tuning import ALTERNATIVES
from ..policy.reasons import LowOccupancy, OverLimit, Reason, Spills, TooManyRegisters
from ..trace import FeedbackStep
from .kernels import Attempt, KernelTrial
from .options import choose_compiler


@dataclass(frozen=True)
class Verdict:
    """What feedback makes of one scheduled function.

    Parameters
    ----------
    attempt : Attempt
        As it was, or scheduled otherwise.
    figures : KernelFigures or None
        Of its kernel; None where there is no CUDA source.
    problem : Reason or None
        What still speaks against it.
    """

    attempt: Attempt
    figures: KernelFigures | None
    problem: Reason | None


class Feedback:
    """Measures kernels, and looks for better schedules of those with a problem.

    Each distinct function is looked at once. The search ends with the tries of
    :data:`tvm_fusion.planning.tuning.ALTERNATIVES`, or with ``Limits.compile_seconds``.

    Parameters
    ----------
    trial : KernelTrial
        Schedules functions.
    limits : Limits
        What kernels are held to.
    compiler : Compiler or None
        Who is asked; None: the estimates of plans are believed.
    arch : str
        Architecture to compile for.
    """

    def __init__(
        self, trial: KernelTrial, limits: Limits, compiler: Compiler | None, arch: str
    ) -> None:
        self.compiler = compiler
        self.steps: list[FeedbackStep] = []
        self._trial = trial
        self._limits = limits
        self._arch = arch
        self._seconds = limits.compile_seconds
        self._known: dict[Any, Verdict] = {}  # structure of a function -> what became of it
        self._measured: dict[KernelText, KernelFigures] = {}

    def figures(self, attempts: Sequence[Attempt]) -> list[KernelFigures | None]:
        """Figures of scheduled functions, compiled together where they are not known yet."""
        texts = [a.text for a in attempts if a.text is not None and a.text not in self._measured]
        texts = list(dict.fromkeys(texts))
        made = measure_kernels(texts, self._trial.device, self._arch, self.compiler)
        self._measured.update(zip(texts, made, strict=True))
        return [None if a.text is None else self._measured[a.text] for a in attempts]

    def judge(self, name: str, func: tirx.PrimFunc, attempt: Attempt) -> Verdict:
        """Look at a scheduled function, and schedule it otherwise if that helps.

        Parameters
        ----------
        name : str
            For the record.
        func : tirx.PrimFunc
            Before scheduling.
        attempt : Attempt
            Its schedule.
        """
        key = tvm_ffi.StructuralKey(func.without_attr("global_symbol"))
        if key not in self._known:
            verdict = self.verdict(attempt)
            if verdict.problem is not None:
                verdict = self._rescheduled(name, func, verdict) or verdict
            self._known[key] = verdict
        return self._known[key]

    def verdict(self, attempt: Attempt) -> Verdict:
        """Look at a scheduled function as it is."""
        (figures,) = self.figures([attempt])
        return Verdict(attempt, figures, self._problem(figures))

    def record(self, name: str, action: str, before: Verdict, after: Sequence[Verdict]) -> None:
        """Note what was done about a problem."""
        assert before.problem is not None
        made = tuple(one.figures for one in after if one.figures is not None)
        self.steps.append(
            FeedbackStep(
                name, before.problem.code, before.problem.message, action, before.figures, made
            )
        )

    def severity(self, verdict: Verdict) -> tuple[int, float]:
        """How bad a problem is: (0, 0) for none. Kinds are compared first, then the amount."""
        problem = verdict.problem
        if problem is None:
            return 0, 0.0
        if isinstance(problem, LowOccupancy):
            return 1, problem.min_occupancy - problem.occupancy
        if isinstance(problem, TooManyRegisters):
            return 1, float(problem.registers - problem.allowed)
        if isinstance(problem, Spills):
            return 2, float(problem.spill_bytes)
        return 3, 0.0

    @property
    def is_out_of_time(self) -> bool:
        """Whether ``compile_seconds`` have been spent on better schedules."""
        return self._seconds is not None and self._seconds <= 0

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Count the time that the block takes."""
        started = time.perf_counter()
        try:
            yield
        finally:
            if self._seconds is not None:
                self._seconds -= time.perf_counter() - started

    # -- problems ---------------------------------------------------------------------------

    def _problem(self, figures: KernelFigures | None) -> Reason | None:
        """What speaks against a kernel; None where nothing does or nothing is known."""
        if figures is None:
            return None
        limits, registers = self._limits, figures.registers or 0
        if figures.spill_bytes:
            return Spills(figures.spill_bytes, registers)
        if limits.registers_per_thread is not None and registers > limits.registers_per_thread:
            return TooManyRegisters(registers, limits.registers_per_thread)
        budget = self._trial.device.shared_memory_budget(limits)
        if figures.shared_bytes > budget:
            attainable = figures.shared_bytes <= self._trial.device.opt_in_shared_memory_bytes
            return OverLimit("bytes of shared memory", figures.shared_bytes, budget, attainable)
        wanted, found = limits.min_occupancy, figures.occupancy
        if wanted is not None and found is not None and found < wanted:
            return LowOccupancy(found, wanted, figures.limiter)
        return None

    # -- other schedules --------------------------------------------------------------------

    def _rescheduled(self, name: str, func: tirx.PrimFunc, verdict: Verdict) -> Verdict | None:
        """The first other plan whose kernel has no problem, or None."""
        kernel = verdict.attempt.kernel
        if kernel is None or kernel.plan is None:
            return None
        for plan in self._alternatives(func, kernel.plan):
            if self.is_out_of_time:
                break
            with self.spending():
                attempt = self._trial.try_group(func, plan)
                other = self.verdict(attempt)
            if other.problem is None and attempt.kernel and attempt.kernel.plan == plan:
                self.record(name, "rescheduled", verdict, [other])
                return other
        return None

    def _alternatives(self, func: tirx.PrimFunc, plan: KernelPlan) -> Iterator[KernelPlan]:
        """Other plans that move no more bytes."""
        device = self._trial.device
        seen = {plan}
        most = plan.bytes_read + plan.bytes_written
        try:
            nests = read_nests(func)
        except Unreadable:
            return
        for tuning in ALTERNATIVES:
            try:
                other = plan_kernel(
                    nests,
                    device.shared_memory_budget(self._limits),
                    device.threads_per_block,
                    device.registers_per_multiprocessor,
                    tuning,
                )
            except CannotPlan:
                continue
            if other not in seen and other.bytes_read + other.bytes_written <= most:
                seen.add(other)
                yield other


def make_feedback(
    mode: str, trial: KernelTrial | None, limits: Limits, quiet: bool = False
) -> Feedback | None:
    """Feedback for kernels that will be scheduled by us; None where it is off or they will not.

    Parameters
    ----------
    mode : str
        ``"auto"``, ``"compiler"`` or ``"off"``.
    trial : KernelTrial or None
        Schedules functions.
    limits : Limits
        What kernels are held to.
    quiet : bool
        Do not warn of a missing compiler: somebody else does in the same build.
    """
    if mode == "off" or trial is None or trial.as_stock or trial.target.kind.name != "cuda":
        return None
    if limits.min_occupancy is not None and not quiet and occupancy(trial.device, 32, 32) is None:
        warnings.warn(
            "Limits.min_occupancy is not checked: NVIDIA's calculator needs g++ and CUDA's headers "
            "(pip install 'tvm-fusion[cuda]'), and knows no such GPU where both are there",
            stacklevel=2,
        )
    return Feedback(trial, limits, *choose_compiler(trial.target, quiet))
