"""The plan of one kernel: pure data, from which the kernel is written and reports are made."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

#: Where the result of a nest lives.
INLINE = "inline"  #: nowhere: it is evaluated where it is read
SCALAR = "scalar"  #: one value a row, in a register of every thread
REGISTER = "register"  #: each thread has the elements that it wrote
SHARED = "shared"  #: all threads of the block can read it
GLOBAL = "global"  #: an output; who reads it inside of the kernel evaluates it again

PLACES = (INLINE, SCALAR, REGISTER, SHARED, GLOBAL)

#: Which threads do what.
FLAT = "flat"  #: pointwise: threads along the elements
ROW = "row"  #: threads along a row, which is contiguous in memory
COLUMN = "column"  #: threads across rows, which are contiguous in memory

MODES = (FLAT, ROW, COLUMN)


#: Estimates up to these never spilled, in thread blocks of up to 512 threads and in larger ones.
_SAFE_REGISTERS = 48
_SAFE_REGISTERS_OF_LARGE = 40


@dataclass(frozen=True)
class KernelPlan:
    """What is decided about the kernel of a group.

    Nests, inputs and classes are referred to by their number in
    :class:`tvm_fusion.analysis.nests.Nests` and :class:`tvm_fusion.planning.digits.Digits` of the
    group's PrimFunc, after ``staged`` inputs got their nests.

    Parameters
    ----------
    mode : str
        ``"flat"``, ``"row"`` or ``"column"``.
    staged : tuple of int
        Inputs, by position, that have a nest of their own which copies them.
    parallel : tuple of int
        Classes that rows are numbered by, outermost first.
    local : tuple of int
        All other classes, in the order in which nests walk them.
    lane : int
        The parallel class whose innermost part is a thread's vector, in column mode; -1: none.
    threads : int
        Threads that work on one row.
    rows_per_block : int
        Rows of one thread block.
    vector : int
        Neighbouring elements that a thread takes at a time.
    chunk : int
        Points of a row that one thread block takes; 0: all of them.
    bound : int
        Points of a row at most for which the plan is good, where their number is symbolic; 0: any.
    longer : KernelPlan or None
        The plan for rows of more points than ``bound``; the host chooses between the two kernels.
    placement : tuple of str
        For each nest where its result lives.
    block_inputs : tuple of int
        Inputs, by position, that a thread block loads to shared memory once for all its threads.
    shared_bytes : int
        Shared memory, in bytes per block at most, what reductions across warps take included.
    registers : int
        Estimated registers of one thread.
    rows, row_points : str
        Number of rows, and points of the longest nest in one.
    bytes_read, bytes_written : int
        Global memory, each tensor once, symbolic extents taken as 128.
    operations : float
        Arithmetic of all evaluations, in additions.
    recompute_factor : float
        Evaluations over evaluations if nothing were evaluated twice, weighed by cost.
    notes : tuple of str
        What the kernel does that costs more than the least, and why.
    """

    mode: str
    staged: tuple[int, ...]
    parallel: tuple[int, ...]
    local: tuple[int, ...]
    lane: int
    threads: int
    rows_per_block: int
    vector: int
    chunk: int
    bound: int
    placement: tuple[str, ...]
    block_inputs: tuple[int, ...]
    shared_bytes: int
    registers: int
    rows: str
    row_points: str
    bytes_read: int
    bytes_written: int
    operations: float
    recompute_factor: float
    notes: tuple[str, ...] = ()
    longer: KernelPlan | None = None

    @property
    def alternatives(self) -> int:
        """Kernels of which the host launches one."""
        return len(self.chain())

    def chain(self) -> list[KernelPlan]:
        """The plan and those for longer rows."""
        return [self, *(self.longer.chain() if self.longer is not None else ())]

    @property
    def threads_per_block(self) -> int:
        """Threads of one thread block."""
        return self.threads * self.rows_per_block

    @property
    def is_safe(self) -> bool:
        """Whether the estimate is so far below what a thread gets that nothing will spill.

        ptxas makes do with fewer registers than a thread may have where that lets another block
        onto a multiprocessor, and spills a few words for it, most of all where blocks are large.
        """
        most = _SAFE_REGISTERS if self.threads_per_block <= 512 else _SAFE_REGISTERS_OF_LARGE
        return all(plan.registers <= most for plan in self.chain())

    def to_json(self) -> dict[str, Any]:
        """The plan as plain data."""
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> KernelPlan:
        """The plan that :meth:`to_json` wrote.

        Raises
        ------
        ValueError, KeyError, TypeError
            The data is none.
        """
        values: dict[str, Any] = {}
        for field in fields(KernelPlan):
            value = data[field.name]
            if field.name == "longer" and value is not None:
                value = KernelPlan.from_json(value)
            values[field.name] = tuple(value) if isinstance(value, list) else value
        plan = KernelPlan(**values)
        counts = (plan.threads, plan.rows_per_block, plan.vector)
        if not all(type(count) is int and count > 0 for count in counts):
            raise ValueError(f"threads, rows and vector are {counts}")
        hash(plan)  # raises where some part is no plain data
        if plan.mode not in MODES or not set(plan.placement) <= set(PLACES):
            raise ValueError(f"mode {plan.mode!r} with places {sorted(set(plan.placement))}")
        return plan


class CannotPlan(Exception):
    """No single kernel is planned for a group.

    Parameters
    ----------
    code : str
        Which rule is in the way; stable across versions.
    message : str
        The same as a sentence, with figures.
    figures : mapping, optional
        The figures by name.
    """

    def __init__(self, code: str, message: str, **figures: float | str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.figures = figures
