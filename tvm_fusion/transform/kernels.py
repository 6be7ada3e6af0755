"""Tries a PrimFunc on a copy: does one launchable kernel come out, and which?"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from ..codegen import CudaKernel, KernelText, emit_cuda, parse_kernels
from ..device import Device
from ..device.gpu import STATIC_SHARED_BYTES
from ..errors import one_line
from ..limits import Limits
from ..planning.kernel_plan import KernelPlan
from ..policy.reasons import OverLimit, Reason, ScheduleFailed, SeveralKernels
from ..schedule import Kernel, candidates, dynamic_shared_bytes, launch_refusal


@dataclass(frozen=True)
class Attempt:
    """The outcome of trying the schedule rules on one PrimFunc.

    Parameters
    ----------
    kernel : Kernel or None
        The first result that the target can launch; for a group, the first of a single kernel.
    reason : Reason or None
        Why there is none.
    shared_bytes : int
        Shared memory of that kernel, declared and requested, in bytes per block.
    text : KernelText or None
        Its CUDA source, for the compiler; None for other targets.
    """

    kernel: Kernel | None
    reason: Reason | None
    shared_bytes: int = 0
    text: KernelText | None = None


def trial_context() -> tvm.transform.PassContext:
    """A pass context for work on copies, which the user's checks and instruments do not see.

    Lowering options of the current context are kept. ``testing.immutable_module`` is not: TVM's
    own SplitHostDevice violates it.
    """
    current = tvm.transform.PassContext.current()
    config = {k: v for k, v in current.config.items() if not k.startswith("testing.")}
    return tvm.transform.PassContext(opt_level=current.opt_level, config=config)


def _lowering_options() -> tuple[tuple[str, str], ...]:
    config = tvm.transform.PassContext.current().config
    return tuple(sorted((str(k), str(v)) for k, v in config.items() if "testing." not in k))


class KernelTrial:
    """Schedules PrimFuncs under one target and remembers what came out.

    Parameters
    ----------
    target : tvm.target.Target
        A GPU target. For CUDA the source is generated as well, and read.
    limits : Limits
        Budgets of a kernel.
    as_stock : bool
        TVM's own pipeline will schedule later: accept only what it will make one kernel of.
    """

    #: Results are kept for this many distinct PrimFuncs, across builds.
    _CACHE_SIZE = 512
    _cache: OrderedDict[Any, Attempt] = OrderedDict()

    def __init__(self, target: tvm.target.Target, limits: Limits, as_stock: bool = False) -> None:
        self.as_stock = as_stock
        self.target = target
        self.limits = limits
        self.device = Device.from_target(target, quiet=True)

    def try_group(self, func: tirx.PrimFunc, plan: KernelPlan | None = None) -> Attempt:
        """Schedule a group: one kernel within the limits, or a reason.

        Parameters
        ----------
        func : tirx.PrimFunc
            The group's unscheduled PrimFunc.
        plan : KernelPlan, optional
            What was planned for it before; planned anew where left out or unfit.
        """
        return self._try(func, single=True, plan=plan)

    def try_op(self, func: tirx.PrimFunc) -> Attempt:
        """Schedule an op by itself, which may take several kernels."""
        return self._try(func, single=False)

    def _try(self, func: tirx.PrimFunc, single: bool, plan: KernelPlan | None = None) -> Attempt:
        bare = func.without_attr("global_symbol") if "global_symbol" in (func.attrs or {}) else func
        limits = (self._budget(), self.limits.max_kernel_args, _lowering_options())
        settings = (str(self.target), limits, single, self.as_stock)
        key = (tvm_ffi.StructuralKey(bare), settings, plan)
        if key in self._cache:
            self._cache.move_to_end(key)
            return self._cache[key]
        with trial_context():
            attempt = self._attempt(bare, single, plan)
        self._cache[key] = attempt
        if attempt.kernel is not None and plan is None:
            # What Schedule asks with the plan that was made here.
            self._cache[(key[0], settings, attempt.kernel.plan)] = attempt
        if len(self._cache) > self._CACHE_SIZE:
            self._cache.popitem(last=False)
        return attempt

    def _budget(self) -> int:
        return self.device.shared_memory_budget(self.limits)

    def _attempt(
        self, func: tirx.PrimFunc, single: bool, plan: KernelPlan | None = None
    ) -> Attempt:
        first_reason: Reason | None = None
        last: Attempt | None = None
        for kernel in candidates(func, self.target, self.as_stock, self.limits, plan):
            attempt = self._checked(kernel, single)
            if attempt.reason is None:
                return attempt
            if last is None:
                first_reason = attempt.reason
            last = attempt
        if last is not None and not single:
            # Leave it to TVM, as the stock pipeline does.
            return replace(last, reason=first_reason)
        return Attempt(None, first_reason or ScheduleFailed("none applies with a right result"))

    def _checked(self, kernel: Kernel, single: bool) -> Attempt:
        """A scheduled function, and why it is refused if it is."""
        if single and kernel.kernels != 1:
            return Attempt(kernel, SeveralKernels(kernel.kernels, kernel.rule))
        reason = launch_refusal(
            kernel.func, self.device.threads_per_block, self.limits.max_kernel_args
        )
        if reason is not None or self.target.kind.name != "cuda":
            return Attempt(kernel, reason)
        try:
            source = emit_cuda(kernel.func, self.target)
        except Exception as error:  # whatever TVM's lowering raises: another rule may do
            return Attempt(kernel, ScheduleFailed(one_line(error)))
        made = parse_kernels(source)
        dynamic = dynamic_shared_bytes(kernel.func)
        shared = max((k.static_shared_bytes for k in made), default=0) + dynamic
        plans = kernel.plan.chain() if kernel.plan is not None else []
        estimated = max((plan.registers for plan in plans), default=None)
        safe = kernel.plan is not None and kernel.plan.is_safe
        text = KernelText(source, dynamic, estimated, 0 if safe else None)
        return Attempt(kernel, self._refusal(kernel, made, dynamic, single), shared, text)

    def _refusal(
        self, kernel: Kernel, made: Sequence[CudaKernel], dynamic: int, single: bool
    ) -> Reason | None:
        """Why generated kernels are refused."""
        alternatives = kernel.plan.alternatives if kernel.plan is not None else 1
        if single and len(made) != alternatives:
            return SeveralKernels(len(made), kernel.rule)
        if single and any(k.uses_dynamic_shared for k in made) and not dynamic:
            return ScheduleFailed("it asks for dynamic shared memory, which is not counted")
        static = max((k.static_shared_bytes for k in made), default=0)
        if static > STATIC_SHARED_BYTES:
            return OverLimit("bytes of static shared memory", static, STATIC_SHARED_BYTES)
        if static + dynamic > self._budget():
            return OverLimit(
                "bytes of shared memory",
                static + dynamic,
                self._budget(),
                attainable=static + dynamic <= self.device.opt_in_shared_memory_bytes,
            )
        return None
