"""Kernels for the tests: TVM's own by its schedule rules, and hand-written CUDA source."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from conftest import make_cuda_target
from tvm import relax, tirx

ORDERS = [{"order": "forward"}, {"order": "reverse"}, {"order": "random", "seed": 1}]


def relax_module(
    build: Callable[..., Any], *shapes: tuple[int | str, ...], dtype: str = "float32"
) -> tvm.IRModule:
    """A module whose `main` is built from one parameter for each shape; a str is symbolic."""
    names: dict[str, tirx.Var] = {}
    params = []
    for index, shape in enumerate(shapes):
        dims = [
            names.setdefault(d, tirx.Var(d, "int64")) if isinstance(d, str) else d for d in shape
        ]
        params.append(relax.Var(f"x{index}", relax.TensorType(dims, dtype)))
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(build(*params))
        builder.emit_func_output(out)
    return builder.finalize()


def stock(mod: tvm.IRModule) -> Any:
    """Compiled by TVM's own pipeline and schedule rules."""
    return tvm.compile(mod, make_cuda_target())


@contextmanager
def source_edited(edit: Callable[[str], str]) -> Iterator[None]:
    """Change the CUDA source of what is compiled in this block."""
    name = "tvm_callback_cuda_compile"
    before = tvm.get_global_func(name)
    tvm.register_global_func(name, lambda code, *_: before(edit(str(code))), override=True)
    try:
        yield
    finally:
        tvm.register_global_func(name, before, override=True)


def launch(
    source: str,
    grid: int | tuple[int, ...],
    block: int | tuple[int, ...],
    *args: np.ndarray | int | float,
    name: str = "k",
    dynamic: int = 0,
) -> list[np.ndarray]:
    """Launch a hand-written kernel; returns its array arguments as they are afterwards.

    The source begins in line 1 of what the emulator reports.
    """
    grid, block = np.atleast_1d(grid).tolist(), np.atleast_1d(block).tolist()
    types = ["handle" if isinstance(a, np.ndarray) else "int32" for a in args]
    types = ["float32" if isinstance(a, float) else t for a, t in zip(args, types, strict=True)]
    tags = [f"{kind}.{'xyz'[i]}" for kind, extents in (("blockIdx", grid), ("threadIdx", block))
            for i in range(len(extents))]  # fmt: skip
    extents = [*grid, *block]
    if dynamic:
        tags.append("tirx.use_dyn_shared_memory")
        extents.append(dynamic)
    info = {"name": "", "arg_types": types, "launch_param_tags": tags}
    metadata = json.dumps({"tvm_version": tvm.__version__, "func_info": {name: info}})
    functions = tvm_ffi.get_global_func("runtime.LoadMetaDataFromJSON")(metadata)
    image = tvm.get_global_func("tvm_callback_cuda_compile")(source)
    module = tvm_ffi.get_global_func("ffi.Module.create.cuda")(image, "cubin", functions, {})
    device = tvm.cuda(0)
    held = [tvm.runtime.tensor(a, device) if isinstance(a, np.ndarray) else a for a in args]
    is_number = [isinstance(a, int | float) for a in args]
    module[name](
        *[a if number else ctypes.c_void_p(a.data_ptr())
          for a, number in zip(held, is_number, strict=True)],
        *extents,
    )  # fmt: skip
    return [a.numpy() for a, number in zip(held, is_number, strict=True) if not number]
