"""Finds reductions into which TVM inlined what follows them.

``reverse_compute_inline`` puts an elementwise consumer into a reduction over an axis of extent 1,
into its start value and into every update: ``y = f(acc + x)`` with ``acc`` started at ``f(0)``.
The result is ``f(f(0) + x)``, which is wrong unless ``f`` is the identity.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx


def accumulates_directly(func: tirx.PrimFunc) -> bool:
    """Whether every store that reads its own buffer only combines that with something.

    Parameters
    ----------
    func : tirx.PrimFunc
        Any PrimFunc. What a user wrote may do otherwise and be right; what matters is whether a
        schedule changed it.
    """
    stores: list[Any] = []
    tvm_ffi.structural_walk(func.body, (tirx.BufferStore, stores.append))
    return all(_is_direct(store) for store in stores)


def _is_direct(store: Any) -> bool:
    value = store.value
    if not _reads(value, store.buffer):
        return True
    if isinstance(value, tirx.Select):  # argmax and its like keep what they have, or replace it
        sides = [value.true_value, value.false_value]
    else:
        sides = [getattr(value, side, None) for side in ("a", "b")]
    mine = [side for side in sides if side is not None and _reads(side, store.buffer)]
    return len(mine) == 1 and isinstance(mine[0], tvm.ir.TensorLoad)


def _reads(expr: Any, buffer: Any) -> bool:
    found: list[Any] = []
    tvm_ffi.structural_walk(expr, (tvm.ir.TensorLoad, found.append))
    return any(load.source.same_as(buffer) for load in found)
