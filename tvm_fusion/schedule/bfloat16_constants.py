"""Takes infinite and undefined constants of type bfloat16 out of a schedule.

TVM's CUDA code generator prints them as ``inff`` and ``nanf``, which no compiler takes.
"""

from __future__ import annotations

import math
from typing import Any

import tvm_ffi
from tvm import tirx


def without_bfloat16_infinities(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """``func`` with such constants given by their bits.

    Parameters
    ----------
    func : tirx.PrimFunc
        A scheduled PrimFunc. It is not changed.
    """

    def visit(constant: Any) -> Any:
        if str(constant.ty.dtype) != "bfloat16" or math.isfinite(constant.value):
            return constant
        return tirx.reinterpret("bfloat16", tirx.const(_bits(constant.value), "uint16"))

    body = tvm_ffi.structural_map(func.body, ((tirx.FloatImm, visit),))
    if body.same_as(func.body):
        return func
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def _bits(value: float) -> int:
    """The bits of an infinity or of not-a-number: sign, eight of exponent, seven of fraction."""
    if math.isnan(value):
        return 0x7FC0
    return 0xFF80 if value < 0 else 0x7F80
