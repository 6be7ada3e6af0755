"""What the machine instructions of a kernel tell: width of accesses to memory, spills."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import CompilerError
from ..toolchain import cuda_tool

_SECTION = re.compile(r"^\s*\.section\s+\.text\.(\w+)", re.MULTILINE)
_INSTRUCTION = re.compile(
    r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)", re.MULTILINE
)

#: Bytes of an access by its width in bits, which is not printed where it is 32.
_WIDTH = re.compile(r"\.(?:[US](8|16)|(64|128|256))(?:\.|$)")


@dataclass(frozen=True)
class InstructionFacts:
    """Instructions of one kernel, counted in its text.

    Parameters
    ----------
    global_load_bytes, global_store_bytes : dict of int to int
        Accesses to global memory by their width, in bytes a thread.
    local_accesses : int
        Accesses to local memory: spills, and arrays that are indexed at run time.
    tensor_core_instructions : int
        Matrix products on tensor cores.
    """

    global_load_bytes: dict[int, int] = field(default_factory=dict)
    global_store_bytes: dict[int, int] = field(default_factory=dict)
    local_accesses: int = 0
    tensor_core_instructions: int = 0


def instruction_facts(code: bytes) -> dict[str, InstructionFacts]:
    """Disassemble device code and count.

    Parameters
    ----------
    code : bytes
        A cubin.

    Returns
    -------
    dict of str to InstructionFacts
        By kernel.

    Raises
    ------
    CompilerError
        nvdisasm is not installed, or cannot read the code.
    """
    return {name: _facts(text) for name, text in _kernels(_disassemble(code)).items()}


def _disassemble(code: bytes) -> str:
    program = cuda_tool("nvdisasm")
    if program is None:
        raise CompilerError("nvdisasm is not installed: pip install 'tvm-fusion[cuda]'")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernels.cubin"
        path.write_bytes(code)
        done = subprocess.run([str(program), "-c", str(path)], capture_output=True, text=True)
    if done.returncode:
        raise CompilerError(f"nvdisasm: {done.stderr.strip()}")
    return done.stdout


def _kernels(text: str) -> dict[str, str]:
    parts = _SECTION.split(text)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _facts(text: str) -> InstructionFacts:
    loads: Counter[int] = Counter()
    stores: Counter[int] = Counter()
    local = tensor = 0
    for name in _INSTRUCTION.findall(text):
        kind = name.split(".")[0]
        if kind in ("LDG", "LDGSTS"):
            loads[_bytes(name)] += 1
        elif kind == "STG":
            stores[_bytes(name)] += 1
        elif kind in ("LDL", "STL"):
            local += 1
        elif kind.endswith("MMA"):
            tensor += 1
    return InstructionFacts(dict(loads), dict(stores), local, tensor)


def _bytes(name: str) -> int:
    match = _WIDTH.search(name)
    return int(match[1] or match[2]) // 8 if match else 4
