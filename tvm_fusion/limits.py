"""The budgets that a fused kernel has to stay within."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from .errors import LimitsError

#: Kernel parameters take up to 4,096 bytes of constant memory before CUDA 12.1 / sm_70
#: (CUDA C++ Programming Guide, "Function Parameters"): 512 pointers of 8 bytes.
MAX_KERNEL_ARGS = 512

#: What the CUDA compiler's figures are used for: the values of the option ``feedback``.
FEEDBACK = ("auto", "compiler", "off")

#: Limits that only feedback can check: they speak of compiled kernels.
OF_COMPILED_KERNELS = ("registers_per_thread", "min_occupancy")


@dataclass(frozen=True)
class Limits:
    """Budgets of one fused kernel. ``None`` means: no limit beyond the target's own.

    Parameters
    ----------
    shared_memory_bytes : int or "opt-in" or None
        Shared memory of one thread block, in bytes. ``None``: what the target says
        (49,152 where it says nothing). ``"opt-in"``: what the architecture grants on request.
    max_depth : int or None
        Ops in one group. ``None``: 8 for the policy ``single_chain``, none for the others.
    registers_per_thread : int or None
        Registers of one thread of a compiled kernel. Groups that take more are scheduled otherwise,
        then split.
    min_occupancy : float or None
        Resident warps per multiprocessor over the maximum, above 0 and up to 1. Groups below it are
        scheduled otherwise, and split where the ops by themselves would meet it.
    max_kernel_args : int
        Tensors that one kernel takes, inputs and outputs together.
    max_group_size : int or None
        Ops in one group, for every policy (``max_depth`` is the classic rule's own limit).
    max_fusions : int or None
        Merges that a policy may make in one dataflow block, in its order. For bisecting a wrong
        result.
    compile_seconds : float or None
        Time that a build may spend on other schedules and splits of groups that the compiler's
        figures speak against. ``None``: the number of tries alone is bounded.

    Raises
    ------
    LimitsError
        A value that no kernel can meet.

    Examples
    --------
    >>> Limits(shared_memory_bytes=16 * 1024, max_depth=4).max_depth
    4
    """

    shared_memory_bytes: int | str | None = None
    max_depth: int | None = None
    registers_per_thread: int | None = None
    min_occupancy: float | None = None
    max_kernel_args: int = MAX_KERNEL_ARGS
    max_group_size: int | None = None
    max_fusions: int | None = None
    compile_seconds: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.shared_memory_bytes, str):
            if self.shared_memory_bytes != "opt-in":
                raise LimitsError(
                    f"Limits.shared_memory_bytes is {self.shared_memory_bytes!r}: give a number "
                    f"of bytes, 'opt-in', or None for the target's own limit"
                )
        else:
            self._check_int("shared_memory_bytes", least=0)
        self._check_int("max_depth", least=1)
        if self.max_kernel_args is None:
            raise LimitsError(
                f"Limits.max_kernel_args is None: CUDA takes {MAX_KERNEL_ARGS}, leave it out"
            )
        self._check_int("max_kernel_args", least=2)
        self._check_int("max_group_size", least=1)
        self._check_int("max_fusions", least=0)
        self._check_int("registers_per_thread", least=16)
        self._check_real("min_occupancy", most=1.0)
        self._check_real("compile_seconds", most=None)

    def _check_int(self, name: str, least: int) -> None:
        value = getattr(self, name)
        if value is None:
            return
        if isinstance(value, bool) or not isinstance(value, int):
            raise LimitsError(f"Limits.{name} is {value!r}: give an integer")
        if value < least:
            raise LimitsError(
                f"Limits.{name} is {value}: no kernel can meet it, give {least} or more"
            )

    def _check_real(self, name: str, most: float | None) -> None:
        value = getattr(self, name)
        if value is None:
            return
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise LimitsError(f"Limits.{name} is {value!r}: give a number")
        if value <= 0 or (most is not None and value > most):
            wanted = "a positive number" if most is None else f"more than 0 and at most {most:g}"
            raise LimitsError(f"Limits.{name} is {value}: give {wanted}")

    def as_dict(self) -> dict[str, Any]:
        """The limits by name, for reports and JSON."""
        return {field.name: getattr(self, field.name) for field in fields(self)}
