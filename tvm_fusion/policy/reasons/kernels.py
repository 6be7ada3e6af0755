"""Reasons found after the policy: by scheduling a group, or by the compiler's figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .base import Reason
from .example import Example

#: Limits that speak of what a scheduled kernel may exceed.
_LIMIT_OF = {
    "bytes of shared memory": "shared_memory_bytes",
    "kernel arguments": "max_kernel_args",
}


@dataclass(frozen=True)
class SeveralKernels(Reason):
    """Scheduled together, the ops come out as several kernels.

    ``dominator`` asks before it goes beyond what TVM fuses. Whatever a policy returns is tried in
    the end, and cut where it is not one kernel.
    """

    kernels: int
    rule: str
    code = "several_kernels"
    template = "scheduled together ({rule}) they come out as {kernels} kernels, not one"
    remedy = "some schedule rule made one kernel of them"
    example = Example(
        """
        def main(x: R.Tensor((64, 128), "float32")):
            a = R.sum(x, axis=1, keepdims=True)
            b = R.subtract(x, a)
            c = R.sum(b, axis=0)
            return c
        """,
        ("a", "b"),
        policy="dominator",
    )
    near_miss = example.but("axis=0", "axis=1")


@dataclass(frozen=True)
class ScheduleFailed(Reason):
    """No schedule rule handles the group, or its source could not be generated.

    The message has the error of the first rule that was tried. A warning is given as well, since
    the ops may fail by themselves too.
    """

    error: str
    code = "schedule_failed"
    template = "no schedule rule handles the group: {error}"
    remedy = "some schedule rule handled the group"
    example = Example(
        """
        def main(x: R.Tensor((64, 128), "float16")):
            a = R.exp(x)
            b = R.asin(a)
            return b
        """,
        ("a", "b"),
    )
    near_miss = example.but("float16", "float32")


@dataclass(frozen=True)
class OverLimit(Reason):
    """The scheduled kernel exceeds a limit: shared memory, threads, grid, arguments.

    The figures say by how much. Raise the limit if it is below what the GPU grants.
    """

    what: str
    amount: int
    allowed: int
    attainable: bool = True
    code = "over_limit"
    template = "scheduled together they need {amount} {what}, {allowed} are allowed"
    remedy = "the GPU granted {amount} {what}"
    example = Example(
        """
        def main(x: R.Tensor((17179869184, 64), "float32")):
            a = R.exp(x)
            b = R.nn.softmax(a, axis=1)
            return b
        """,
        ("a", "b"),
    )
    near_miss = example.but("17179869184", "17179869176")

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
        return super().would_fuse_if


@dataclass(frozen=True)
class Spills(Reason):
    """The compiler keeps values of the group's kernel in memory for want of registers.

    It does so under every schedule that was tried. Apart they spill less, or nothing.
    """

    spill_bytes: int
    registers: int
    code = "spills"
    template = "in one kernel of {registers} registers a thread they spill {spill_bytes} bytes"
    remedy = "fewer values were alive at once"
    scarce = "registers"
    example = Example(
        """
        def main(x: R.Tensor((33,), "float64")):
            p1 = R.exp(x)
            p{i} = R.multiply(p{i - 1}, x)  # for i = 2 to 130
            s130 = R.exp(p130)
            s{i} = R.add(s{i + 1}, p{i})  # for i = 129 to 1
            return s1
        """,
        ("p1", "s1"),
        compiled=True,
    )

    near_miss = Example(
        """
        def main(x: R.Tensor((33,), "float64")):
            p1 = R.exp(x)
            p{i} = R.multiply(p{i - 1}, x)  # for i = 2 to 110
            s110 = R.exp(p110)
            s{i} = R.add(s{i + 1}, p{i})  # for i = 109 to 1
            return s1
        """,
        ("p1", "s1"),
        compiled=True,
    )


@dataclass(frozen=True)
class TooManyRegisters(Reason):
    """The group's compiled kernel takes more registers than ``registers_per_thread``.

    It does so under every schedule that was tried. Apart the ops take fewer. A group that takes as
    many however it is cut stays as it is.
    """

    registers: int
    allowed: int
    code = "registers"
    template = "in one kernel they take {registers} registers a thread, {allowed} are allowed"
    remedy = "Limits.registers_per_thread were {registers} or more"
    scarce = "registers"
    limit, needed = "registers_per_thread", "registers"
    example = Example(
        """
        def main(x: R.Tensor((8, 64), "float64")):
            p1 = R.exp(x)
            p{i} = R.multiply(p{i - 1}, x)  # for i = 2 to 20
            s20 = R.exp(p20)
            s{i} = R.add(s{i + 1}, p{i})  # for i = 19 to 1
            return s1
        """,
        ("p1", "s1"),
        limits={"registers_per_thread": 32},
        compiled=True,
    )
    near_miss = example.but(limits={"registers_per_thread": 64})


@dataclass(frozen=True)
class LowOccupancy(Reason):
    """The group's kernel fills less of a multiprocessor than ``min_occupancy``.

    Its parts fill more by themselves. A group whose parts do not stays as it is.
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
    example = Example(
        """
        def main(x: R.Tensor((8, 64), "float64")):
            p1 = R.exp(x)
            p{i} = R.multiply(p{i - 1}, x)  # for i = 2 to 40
            s40 = R.exp(p40)
            s{i} = R.add(s{i + 1}, p{i})  # for i = 39 to 1
            return s1
        """,
        ("p1", "s1"),
        limits={"min_occupancy": 0.5},
        compiled=True,
    )
    near_miss = example.but(limits={"min_occupancy": 0.2})
