"""Where the threads of a block wait for each other.

TVM's own pass sees no conflict where a store and a load have one index that is the same for several
threads, and cannot place a barrier within the condition by which the host chooses a kernel.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx


def barrier(scope: str) -> Any:
    """The statement at which all threads of a block wait for each other."""
    return tirx.Evaluate(tirx.call_intrin("void", "tirx.tvm_storage_sync", scope))


class Barriers:
    """Remembers which arrays in shared memory were touched since the last barrier."""

    def __init__(self) -> None:
        self._read: set[Any] = set()
        self._written: set[Any] = set()

    def needed(self, read: set[Any], written: set[Any]) -> bool:
        """Whether threads have to wait before they touch these arrays; if so, they have."""
        conflict = bool(read & self._written or written & (self._read | self._written))
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
