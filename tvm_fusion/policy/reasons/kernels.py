"""Reasons found after the policy: by scheduling a group, or by the compiler's figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .base import Reason

#: Limits that speak of what a scheduled kernel may exceed.
_LIMIT_OF = {
    "bytes of shared memory": "shared_memory_bytes",
    "kernel arguments": "max_kernel_args",
}


@dataclass(frozen=True)
class SeveralKernels(Reason):
    """Scheduled together, the ops come out as several kernels."""

    kernels: int
    rule: str
    code = "several_kernels"
    template = "scheduled together ({rule}) they come out as {kernels} kernels, not one"
    remedy = "some schedule rule made one kernel of them"


@dataclass(frozen=True)
class ScheduleFailed(Reason):
    """No schedule rule handles the group, or its source could not be generated."""

    error: str
    code = "schedule_failed"
    template = "no schedule rule handles the group: {error}"
    remedy = "some schedule rule handled the group"


@dataclass(frozen=True)
class OverLimit(Reason):
    """The scheduled kernel exceeds a limit: shared memory, threads, grid, arguments."""

    what: str
    amount: int
    allowed: int
    attainable: bool = True
    code = "over_limit"
    template = "scheduled together they need {amount} {what}, {allowed} are allowed"

    @property
    def resource(self) -> str:
        """What there is too little of."""
        return self.what.removeprefix("bytes of ")

    @property
    def limits_needed(self) -> dict[str, Any]:
        """The limit, where there is one of that resource and the GPU grants as much."""
        limit = _LIMIT_OF.get(self.what)
        return {limit: self.amount} if limit and self.attainable else {}

    @property
    def would_fuse_if(self) -> str:
        """What would have to be otherwise."""
        for limit, needed in self.limits_needed.items():
            return f"Limits.{limit} were {needed} or more"
        return f"the GPU granted {self.amount} {self.what}"


@dataclass(frozen=True)
class Spills(Reason):
    """The compiler keeps values of the group's kernel in memory for want of registers.

    It does so under every schedule that was tried. Apart they do not spill.
    """

    spill_bytes: int
    registers: int
    code = "spills"
    template = "in one kernel of {registers} registers a thread they spill {spill_bytes} bytes"
    remedy = "fewer values were alive at once"
    scarce = "registers"


@dataclass(frozen=True)
class TooManyRegisters(Reason):
    """The group's compiled kernel takes more registers than ``registers_per_thread``."""

    registers: int
    allowed: int
    code = "registers"
    template = "in one kernel they take {registers} registers a thread, {allowed} are allowed"
    remedy = "Limits.registers_per_thread were {registers} or more"
    scarce = "registers"
    limit, needed = "registers_per_thread", "registers"


@dataclass(frozen=True)
class LowOccupancy(Reason):
    """The group's kernel fills less of a multiprocessor than ``min_occupancy``, and than its parts
    do by themselves.
    """

    occupancy: float
    min_occupancy: float
    limiter: str
    code = "occupancy"
    template = (
        "in one kernel they occupy {occupancy:.0%} of a multiprocessor's warps for lack of "
        "{limiter}, at least {min_occupancy:.0%} are wanted"
    )
    remedy = "Limits.min_occupancy were {occupancy} or less"
    scarce = "occupancy"
    limit, needed = "min_occupancy", "occupancy"
