"""CUDA source as TVM generates it: how many kernels, how much shared memory, which threads."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx

_KERNEL = re.compile(
    r'extern "C" __global__ void (?:__launch_bounds__\((\d+)\) )?(\w+)\([^)]*\)\s*\{'
)
_SHARED = re.compile(
    r"^\s*__shared__\s+(?:alignas\((\d+)\)\s+)?(?:__align__\((\d+)\)\s+)?([\w ]+?)\s+\w+\[(\d+)\];",
    re.MULTILINE,
)

#: Bytes of the C types that TVM's CUDA code generator declares arrays of.
_TYPE_BYTES = {
    "float": 4, "double": 8, "half": 2, "nv_bfloat16": 2, "int": 4, "uint": 4, "unsigned int": 4,
    "short": 2, "ushort": 2, "signed char": 1, "char": 1, "uchar": 1, "bool": 1,
    "int64_t": 8, "uint64_t": 8, "longlong": 8, "long long": 8, "signed long long": 8,
}  # fmt: skip

#: The global function of TVM that compiles CUDA source.
CUDA_COMPILE = "tvm_callback_cuda_compile"


@dataclass(frozen=True)
class CudaKernel:
    """One kernel of a CUDA source.

    Parameters
    ----------
    name : str
        Its entry point.
    threads : int or None
        What ``__launch_bounds__`` says; None where it says nothing.
    static_shared_bytes : int
        Statically declared shared memory, in bytes per thread block.
    uses_dynamic_shared : bool
        It also asks for shared memory at launch; the source does not say how much.
    """

    name: str
    threads: int | None
    static_shared_bytes: int
    uses_dynamic_shared: bool = False


def parse_kernels(source: str) -> list[CudaKernel]:
    """Find the kernels of a CUDA source that TVM generated.

    Parameters
    ----------
    source : str
        CUDA C++.
    """
    matches = list(_KERNEL.finditer(source))
    ends = [match.start() for match in matches[1:]] + [len(source)] * bool(matches)
    return [
        CudaKernel(
            name=match[2],
            threads=int(match[1]) if match[1] else None,
            static_shared_bytes=_shared_bytes(source[match.end() : end]),
            uses_dynamic_shared="extern __shared__" in source[match.end() : end],
        )
        for match, end in zip(matches, ends, strict=True)
    ]


def _shared_bytes(body: str) -> int:
    """Bytes of the shared arrays declared in ``body``, laid out one behind the other."""
    offset = 0
    for aligned, aligned_old, ctype, count in _SHARED.findall(body):
        size = _TYPE_BYTES.get(ctype)
        if size is None:
            vector = re.fullmatch(r"(\D+?)(\d+)", ctype)
            size = _TYPE_BYTES.get(vector[1], 16) * int(vector[2]) if vector else 16
        align = int(aligned or aligned_old or size)
        offset = -(-offset // align) * align + size * int(count)
    return offset


def cuda_source(executable: Any) -> str:
    """The CUDA source inside of what ``tvm.compile`` or ``tvm.tirx.build`` returned.

    Parameters
    ----------
    executable : tvm.runtime.Executable or tvm.runtime.Module
        A build for a CUDA target.

    Returns
    -------
    str
        Empty if the build holds no CUDA kernel.
    """
    module = getattr(executable, "mod", executable)
    found: list[str] = []
    stack = [module]
    while stack:
        current = stack.pop()
        if current.kind == "cuda":
            found.append(current.inspect_source())
        stack.extend(reversed(list(current.imports)))
    return "\n".join(found)


def emit_cuda(func: tirx.PrimFunc, target: tvm.target.Target) -> str:
    """Generate the CUDA source of one scheduled PrimFunc.

    No device compiler is called, also where a GPU is present.

    Parameters
    ----------
    func : tirx.PrimFunc
        A scheduled PrimFunc.
    target : tvm.target.Target
        A CUDA target.

    Returns
    -------
    str
    """
    if target.host is None:
        target = target.with_host("llvm")
    mod = tvm.IRModule({"kernel": func.with_attr("global_symbol", "kernel")})
    with device_compiler(lambda _source: b""):  # only the text is wanted
        return cuda_source(tvm.tirx.build(mod, target))


#: What makes device code of this thread's sources, where it is not TVM's own compiler.
_STAND_IN: ContextVar[Callable[[str], bytes] | None] = ContextVar(
    "tvm_fusion_device_compiler", default=None
)
_SWAP = threading.RLock()


@contextmanager
def device_compiler(compile_source: Callable[[str], bytes]) -> Iterator[None]:
    """Have TVM get device code from ``compile_source``, for the length of the block.

    The compiler is a global function of TVM. What stands in for it answers this thread's requests
    only, passes every other on, and is in place for one thread at a time.

    Parameters
    ----------
    compile_source : callable
        Takes CUDA source, gives device code.
    """
    with _SWAP:
        before = tvm.get_global_func(CUDA_COMPILE, allow_missing=True)
        if before is None:
            yield
            return

        def stand_in(source: Any, *rest: Any) -> Any:
            chosen = _STAND_IN.get()
            return before(source, *rest) if chosen is None else chosen(str(source))

        token = _STAND_IN.set(compile_source)
        tvm.register_global_func(CUDA_COMPILE, stand_in, override=True)
        try:
            yield
        finally:
            tvm.register_global_func(CUDA_COMPILE, before, override=True)
            _STAND_IN.reset(token)
