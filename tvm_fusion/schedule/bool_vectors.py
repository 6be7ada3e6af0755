"""Takes vector accesses to bool tensors out of a schedule.

TVM's CUDA code generator prints a vector of bool as ``ushort2`` or ``ushort4``, two bytes an
element, and reads it from memory that holds one byte an element: the loaded values are wrong and
the last ones lie behind the end of the tensor.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx

from ..analysis.blocks import loads_of


def without_bool_vectors(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """``func`` with every vectorised loop that touches a bool buffer unrolled instead.

    Parameters
    ----------
    func : tirx.PrimFunc
        A scheduled PrimFunc. It is not changed.
    """

    def visit(loop: Any) -> Any:
        if loop.kind != tirx.ForKind.VECTORIZED or not _touches_bool(loop.body):
            return loop
        return tirx.For(
            loop.loop_var,
            loop.min,
            loop.extent,
            tirx.ForKind.UNROLLED,
            loop.body,
            loop.thread_binding,
            loop.annotations,
        )

    body = tvm_ffi.structural_map(func.body, ((tirx.For, visit),))
    if body.same_as(func.body):
        return func
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def _touches_bool(body: Any) -> bool:
    stores: list[Any] = []
    tvm_ffi.structural_walk(body, (tirx.BufferStore, stores.append))
    buffers = [load.source for load in loads_of(body)] + [store.buffer for store in stores]
    return any(str(buffer.dtype) == "bool" for buffer in buffers)
