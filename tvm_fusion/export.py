"""Build here, run there: a library with finished device code, made without a GPU.

TVM compiles CUDA source when it builds for a GPU that is there; elsewhere the library holds source,
and TVM's runtime alone cannot compile it. Here TVM's CUDA runtime is loaded with the emulator's
stand-ins for a driver, so that TVM asks for device code, and NVIDIA's compiler makes it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import tvm

from . import emulator
from .cache import cached
from .codegen import find_compiler
from .codegen.source import device_compiler
from .errors import CompilerError


def export_library(mod: tvm.IRModule, target: tvm.target.Target, path: Path | str) -> str:
    """Compile a module and write a library that TVM's runtime loads without a compiler.

    Without a GPU the emulator is installed, and stays for the rest of the process.

    Parameters
    ----------
    mod : tvm.IRModule
        A Relax module, fused and scheduled or not; TVM's default pipeline compiles it.
    target : tvm.target.Target
        A CUDA target with an architecture.
    path : pathlib.Path or str
        The library to write, like ``model.so``. A host compiler links it.

    Returns
    -------
    str
        The compiler of the device code, with version.

    Raises
    ------
    CompilerError
        No CUDA compiler is installed, or it makes no code for the architecture.
    EmulatorError
        There is no GPU, and what stands in for its driver cannot be made: no g++, no CUDA headers.

    Examples
    --------
    >>> export_library(mod, tvm.target.Target("nvidia/nvidia-h100"), "model.so")  # doctest: +SKIP

    and on the machine with the GPU, where ``tvm`` may be the runtime only::

        machine = relax.VirtualMachine(tvm.runtime.load_module("model.so"), tvm.cuda(0))
    """
    arch = str(target.attrs.get("arch") or "")
    compiler = find_compiler()
    if compiler is None:
        raise CompilerError("device code needs a CUDA compiler: pip install 'tvm-fusion[cuda]'")
    if not compiler.supports(arch):
        raise CompilerError(f"{compiler.name} makes no code for {arch or 'no architecture'}")
    if target.host is None:
        target = target.with_host("llvm")
    if not tvm.cuda(0).exist:
        emulator.install()

    def compile_source(source: str) -> bytes:
        code = compiler.compile(source, arch).code
        _remember(code, source)
        return code

    with device_compiler(compile_source):
        executable = tvm.compile(mod, target)
    executable.export_library(str(path))
    return compiler.name


def _remember(code: bytes, source: str) -> None:
    """Keep the source of device code, from which the emulator runs it."""
    name = emulator.source_entry(hashlib.sha256(code).hexdigest())

    def make(folder: Path) -> None:
        (folder / name).write_text(source)

    try:
        cached(name, make)
    except OSError:  # only the emulator would need it
        return
