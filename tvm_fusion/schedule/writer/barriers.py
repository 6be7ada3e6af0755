"""Where the threads of a block wait for each other.

TVM's own pass sees no conflict where a store and a load have one index that is the same for several
threads, and cannot place a barrier within the condition by which the host chooses a kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import tirx


def barrier(scope: str) -> Any:
    """The statement at which all threads of a block wait for each other."""
    return tirx.Evaluate(tirx.call_intrin("void", "tirx.tvm_storage_sync", scope))


class Barriers:
    """Remembers which arrays in shared memory were touched since the last barrier.

    Parameters
    ----------
    ends : mapping of Buffer to int
        The last nest that touches each array. TVM lays an array over one that is not used any
        more (``StorageRewrite``), so what first writes to it must wait for those who read that.
    """

    def __init__(self, ends: Mapping[Any, int]) -> None:
        self._ends = ends
        self._read: set[Any] = set()
        self._written: set[Any] = set()
        self._begun: set[Any] = set()

    def needed(self, nest: int, read: set[Any], written: set[Any]) -> bool:
        """Whether threads have to wait before a nest touches these arrays; if so, they have."""
        touched = self._read | self._written
        conflict = bool(read & self._written or written & touched)
        if written - self._begun:
            conflict |= any(self._ends[array] < nest for array in touched)
        self._begun |= written
        if conflict:
            self.passed()
        return conflict

    def passed(self) -> None:
        """All threads have waited."""
        self._read, self._written = set(), set()

    def touched(self, read: set[Any], written: set[Any]) -> None:
        """These arrays were touched."""
        self._read |= read
        self._written |= written
