"""What a launch did to memory, counted by the runtime: by kernel, source line and argument."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class LineProfile:
    """Traffic of one source line with one kind of memory.

    Parameters
    ----------
    line : int
        Of the CUDA source; 0 if it is not known.
    space : str
        ``"global"`` or ``"shared"``.
    bytes_loaded, bytes_stored : int
        As the threads ask for them: two threads that load one byte count twice.
    requests : int
        Accesses of whole warps.
    transactions : int
        Global memory: 32-byte sectors that the requests touch. Shared memory: wavefronts, more
        than the least where lanes conflict over a bank.
    least_transactions : int
        As many would do for the same bytes, lying next to each other, without conflicts.
    """

    line: int
    space: str
    bytes_loaded: int
    bytes_stored: int
    requests: int
    transactions: int
    least_transactions: int


@dataclass(frozen=True)
class ArgumentProfile:
    """What a kernel did to the buffer of one of its pointer arguments.

    Parameters
    ----------
    name : str
        The argument's.
    buffer_bytes : int
        Size of the buffer.
    bytes_loaded, bytes_stored : int
        Of all requests; lanes of one request that access the same byte count once.
    loads_per_element : float
        How often each element that is loaded at all is loaded, on average, by all profiled blocks
        together.
    loads_per_element_in_block : float
        The same within one block: 1 for an input that each block reads once.
    """

    name: str
    buffer_bytes: int
    bytes_loaded: int
    bytes_stored: int
    loads_per_element: float
    loads_per_element_in_block: float


@dataclass(frozen=True)
class KernelProfile:
    """All profiled launches of one kernel.

    Parameters
    ----------
    name : str
        The kernel's.
    launches, blocks : int
        How many launches, and how many of their blocks were profiled.
    threads_per_block : int
        Of the last launch.
    barriers : int
        ``__syncthreads()`` that the profiled blocks passed.
    barrier_lines : dict of int to int
        The same by source line.
    lines : tuple of LineProfile
        In the order of the source.
    arguments : tuple of ArgumentProfile
        Pointer arguments in the order of the kernel's parameters.
    """

    name: str
    launches: int
    blocks: int
    threads_per_block: int
    barriers: int
    barrier_lines: dict[int, int]
    lines: tuple[LineProfile, ...]
    arguments: tuple[ArgumentProfile, ...]

    def total(self, field: str, space: str = "global") -> int:
        """Sum of a field of :class:`LineProfile` over the lines of one kind of memory."""
        return sum(getattr(line, field) for line in self.lines if line.space == space)

    def argument(self, name: str) -> ArgumentProfile:
        """The argument of that name.

        Raises
        ------
        KeyError
            There is none.
        """
        for argument in self.arguments:
            if argument.name == name:
                return argument
        raise KeyError(name)


@dataclass(frozen=True)
class Profile:
    """The kernels that ran while profiling was on, by name."""

    kernels: tuple[KernelProfile, ...]

    def kernel(self, name: str) -> KernelProfile:
        """The kernel of that name.

        Raises
        ------
        KeyError
            It did not run.
        """
        for kernel in self.kernels:
            if kernel.name == name:
                return kernel
        raise KeyError(name)

    def table(self) -> Table:
        """A table for a terminal: of each kernel its lines, then its pointer arguments."""
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD)
        table.add_column("kernel, line or argument", overflow="fold")
        for name in ("loaded B", "stored B", "requests", "sectors", "least"):
            table.add_column(name, justify="right", no_wrap=True)
        for kernel in self.kernels:
            table.add_row(f"{kernel.name}: {kernel.blocks} blocks, {kernel.barriers} barriers")
            for line in kernel.lines:
                counts = (line.requests, line.transactions, line.least_transactions)
                size = (line.bytes_loaded, line.bytes_stored)
                table.add_row(f"  line {line.line}, {line.space}", *map(str, (*size, *counts)))
            for argument in kernel.arguments:
                times = f"{argument.loads_per_element:.2f} loads per element"
                what = f"  {argument.name}" + (f": {times}" if argument.bytes_loaded else "")
                table.add_row(what, str(argument.bytes_loaded), str(argument.bytes_stored))
        return table


def profile() -> Profile:
    """What has been counted since the last ``configure(profile=...)`` was entered.

    Returns
    -------
    Profile
        Empty if nothing was profiled.

    Raises
    ------
    EmulatorError
        The emulator is not installed.
    """
    from .install import native

    found = json.loads(native().emulator_profile().decode())
    return Profile(tuple(_kernel(kernel) for kernel in found))


def _kernel(found: dict[str, Any]) -> KernelProfile:
    by_line: dict[tuple[int, str], list[int]] = defaultdict(lambda: [0] * 5)
    for site in found["sites"]:
        counts = by_line[site["line"], "global" if site["global"] else "shared"]
        counts[1 if site["write"] else 0] += site["bytes"]
        for index, name in enumerate(("requests", "transactions", "least"), start=2):
            counts[index] += site[name]
    return KernelProfile(
        name=found["name"],
        launches=found["launches"],
        blocks=found["blocks"],
        threads_per_block=found["threads"],
        barriers=found["barriers"],
        barrier_lines=dict(found["barrier_lines"]),
        lines=tuple(LineProfile(*place, *counts) for place, counts in sorted(by_line.items())),
        arguments=tuple(
            ArgumentProfile(
                name=argument["name"],
                buffer_bytes=argument["size"],
                bytes_loaded=argument["loaded"],
                bytes_stored=argument["stored"],
                loads_per_element=argument["loaded"] / max(argument["distinct"], 1),
                loads_per_element_in_block=argument["loaded"]
                / max(argument["distinct_in_blocks"], 1),
            )
            for argument in found["arguments"]
        ),
    )
