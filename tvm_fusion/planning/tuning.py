"""What a plan may be told to do otherwise, when the compiler did not like the first one."""

from __future__ import annotations

from dataclasses import dataclass

from .launch import MAX_VECTOR


@dataclass(frozen=True)
class Tuning:
    """Sizes that planning aims at. The defaults suit most kernels.

    Parameters
    ----------
    max_threads : int
        Threads of a block at most.
    max_vector : int
        Neighbouring elements that a thread takes at a time at most.
    elements : int
        Elements that one thread takes of a row that is not too long.
    row_registers : int
        Registers of one thread that elements of a row may take, where threads could share them
        through shared memory.
    """

    max_threads: int = 1024
    max_vector: int = MAX_VECTOR
    elements: int = 16
    row_registers: int = 64


DEFAULT_TUNING = Tuning()

#: Other plans of one kernel, the mildest change first: another launch shape, fewer elements a
#: thread, shared memory instead of registers.
ALTERNATIVES = (
    Tuning(max_threads=512),
    Tuning(elements=8),
    Tuning(max_vector=4),
    Tuning(row_registers=32),
    Tuning(max_threads=256),
    Tuning(elements=4, max_vector=4),
    Tuning(max_vector=2),
    Tuning(row_registers=16),
    Tuning(max_threads=256, max_vector=2),
    Tuning(elements=2, max_vector=2, row_registers=16),
    Tuning(max_vector=1),
    Tuning(elements=1, max_vector=1, row_registers=8),
)
