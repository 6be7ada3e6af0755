"""What the CUDA compiler makes of kernels: registers, spills, shared memory; asked once of each."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from ..cache import cache_directory, cached, key
from ..errors import CompilerError, one_line
from .compilers import Compiler

#: Version of the cached files.
_FORMAT = 1

_ENTRY = re.compile(r"Compiling entry function '(\w+)' for '\w+'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_BARRIERS = re.compile(r"used (\d+) barriers")
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True)
class KernelResources:
    """What one compiled kernel takes.

    Parameters
    ----------
    registers : int
        32-bit registers of a thread.
    stack_bytes : int
        Local memory of a thread: arrays that are indexed at run time, and spills.
    spill_store_bytes, spill_load_bytes : int
        Registers that are written to local memory and read back, in bytes a thread, counted in the
        text of the kernel, not in its loops.
    static_shared_bytes : int
        Shared memory that is declared, in bytes a thread block.
    barriers : int
        Hardware barriers.
    compiler : str
        Name and version.
    """

    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    static_shared_bytes: int
    barriers: int
    compiler: str

    @property
    def spill_bytes(self) -> int:
        """Bytes that are written to and read from local memory for want of registers."""
        return self.spill_store_bytes + self.spill_load_bytes


def parse_log(log: str, compiler: str) -> dict[str, KernelResources]:
    """Read what ``ptxas -v`` says.

    Parameters
    ----------
    log : str
        Its output.
    compiler : str
        Who is quoted.

    Returns
    -------
    dict of str to KernelResources
        By kernel, in the order of the log.
    """
    parts = _ENTRY.split(log)[1:]
    found = {}
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        stack, registers = _STACK.search(text), _REGISTERS.search(text)
        barriers, shared = _BARRIERS.search(text), _SHARED.search(text)
        if stack is None or registers is None:
            raise CompilerError(f"{compiler} says nothing of the registers of kernel {name}")
        found[name] = KernelResources(
            registers=int(registers[1]),
            stack_bytes=int(stack[1]),
            spill_store_bytes=int(stack[2]),
            spill_load_bytes=int(stack[3]),
            static_shared_bytes=int(shared[1]) if shared else 0,
            barriers=int(barriers[1]) if barriers else 0,
            compiler=compiler,
        )
    return found


def compile_resources(
    sources: Sequence[str], arch: str, compiler: Compiler
) -> list[dict[str, KernelResources] | CompilerError]:
    """Compile sources, several at a time, and give the figures of their kernels.

    Results are kept on disk, in ``$TVM_FUSION_CACHE`` or ``~/.cache/tvm_fusion``, by source,
    architecture, compiler and flags: what was asked before is not compiled again, by no process.

    Parameters
    ----------
    sources : sequence of str
        CUDA C++ as TVM generates it. Equal ones are compiled once.
    arch : str
        Like ``"sm_90a"``.
    compiler : Compiler
        From :func:`find_compiler`.

    Returns
    -------
    list
        For each source the figures by kernel, or the error of the compiler.
    """
    distinct = list(dict.fromkeys(sources))
    names = {source: _entry_name(source, arch, compiler) for source in distinct}
    found: dict[str, dict[str, KernelResources] | CompilerError] = {}
    for source in distinct:
        known = _read(names[source])
        if known is not None:
            found[source] = known
    missing = [source for source in distinct if source not in found]
    if missing:
        workers = min(len(missing), len(os.sched_getaffinity(0)))
        with ThreadPoolExecutor(workers) as pool:
            made = pool.map(lambda source: _compile(source, arch, compiler), missing)
            for source, result in zip(missing, made, strict=True):
                found[source] = result
                if isinstance(result, dict):
                    _write(names[source], result)
    return [found[source] for source in sources]


def _entry_name(source: str, arch: str, compiler: Compiler) -> str:
    parts = [str(_FORMAT), compiler.name, *compiler.flags(arch), source]
    return f"resources-{key(parts)}.json"


def _compile(
    source: str, arch: str, compiler: Compiler
) -> dict[str, KernelResources] | CompilerError:
    try:
        return parse_log(compiler.compile(source, arch).log, compiler.name)
    except CompilerError as error:
        return error
    except OSError as error:
        return CompilerError(f"{compiler.name}: {one_line(error)}")


def _read(name: str) -> dict[str, KernelResources] | None:
    """The entry of that name; None where there is none that can be read."""
    try:
        data = json.loads((cache_directory() / name).read_text())
        found = {str(kernel): KernelResources(**figures) for kernel, figures in data.items()}
        figures = [v for one in data.values() for k, v in one.items() if k != "compiler"]
        return found if all(type(figure) is int for figure in figures) else None
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def _write(name: str, figures: dict[str, KernelResources]) -> None:
    """Put an entry in place of whatever lies there; a cache that cannot be written is none."""
    text = json.dumps({kernel: asdict(one) for kernel, one in figures.items()})

    def make(folder: Path) -> None:
        (folder / name).write_text(text)

    try:
        cached(name, make, replace=True)
    except OSError:
        return
