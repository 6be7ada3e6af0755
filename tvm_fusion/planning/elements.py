"""How the threads of a row divide the elements of nests among them."""

from __future__ import annotations

from .launch import WARP_THREADS, Launch
from .layout import Layout


class Elements:
    """How the threads of a row divide the elements of nests among them.

    Parameters
    ----------
    layout : Layout
        How the kernel walks the group.
    launch : Launch
        The threads.
    columns : bool
        Neighbouring threads have neighbouring rows, not neighbouring elements of one.
    """

    def __init__(self, layout: Layout, launch: Launch, columns: bool) -> None:
        self.layout = layout
        self.launch = launch
        self.columns = columns
        self.lanes = launch.vector if layout.lane is not None else 1

    def vector(self, classes: tuple[int, ...]) -> int:
        """Elements of a vector along some local classes."""
        if self.layout.lane is not None or not classes:
            return 1
        extent = self.layout.digits.extents[classes[-1]]
        return self.launch.vector if extent.number % self.launch.vector == 0 else 1

    def is_bounded(self, classes: tuple[int, ...]) -> bool:
        """Whether it is known how many elements a thread takes at most."""
        size = self.layout.size(classes)
        return bool(self.launch.chunk or self.launch.bound or size.static is not None)

    def steps(self, classes: tuple[int, ...]) -> int:
        """Vectors that a thread takes, one after the other; 1 where that is not bounded."""
        if not self.is_bounded(classes):
            return 1
        size = self.launch.chunk or self.layout.size(classes).static or self.launch.bound
        return -(-size // (self.launch.threads * self.vector(classes)))

    def per_thread(self, classes: tuple[int, ...]) -> int:
        """Elements that a thread holds of a result with these classes."""
        return self.steps(classes) * self.vector(classes)

    @property
    def exchanges(self) -> bool:
        """Whether threads exchange partial results of a reduction through an array of ours."""
        return self.columns and self.launch.threads > 1

    @property
    def warps(self) -> int:
        """Warps that work on one row; 1 also where several rows share a warp."""
        return max(1, self.launch.threads // WARP_THREADS)

    def spreads(self, classes: tuple[int, ...]) -> bool:
        """Whether an input that all rows of a block share is laid out as its threads walk it.

        Otherwise, where it has few elements, it lies there as it is.
        """
        size = self.layout.size(classes).number
        return 2 * size > self.launch.threads * self.vector(classes)

    def block_elements(self, classes: tuple[int, ...]) -> int:
        """Elements of an array that holds an input for all rows of a block."""
        size = self.layout.size(classes).number
        if not self.spreads(classes):
            return size
        vectors = size // self.vector(classes)
        of_last_step = vectors - (self.steps(classes) - 1) * self.launch.threads
        return (self.per_thread(classes) - 1) * self.launch.threads + of_last_step

    def shared_elements(self, classes: tuple[int, ...]) -> int:
        """Elements of an array that holds what all threads of a block have of a result."""
        block = self.launch.threads * self.launch.rows
        return self.per_thread(classes) * self.lanes * block
