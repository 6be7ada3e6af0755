"""Questions about Relax functions and bindings that graph building and the passes ask."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from .blocks import element_bytes, static_product, vars_of

CALL_TIR = "relax.call_tir"
CALL_TIR_INPLACE = "relax.call_tir_inplace"

#: An integer as TVMScript prints it.
_INTEGER = re.compile(r"T\.int64\((-?\d+)\)")


def is_call_tir(expr: Any) -> bool:
    """Whether an expression is a ``call_tir``."""
    return isinstance(expr, relax.Call) and getattr(expr.op, "name", "") == CALL_TIR


def owned_by_others(func: relax.Function) -> bool:
    """Whether a Relax function belongs to another pass: Primitive, Codegen or Composite."""
    return bool(func.attrs) and any(
        key in func.attrs for key in ("Primitive", "Codegen", "Composite")
    )


def other_device(func: Any) -> str | None:
    """The kind of target that a PrimFunc names for itself, if it is not CUDA; None otherwise."""
    own = (func.attrs or {}).get("target")
    return None if own is None or own.kind.name == "cuda" else str(own.kind.name)


def used_vars(value: Any) -> list[Any]:
    """Variables that the value of a binding reads, with repetition, in order."""
    if isinstance(value, relax.Var):
        return [value]
    if is_call_tir(value):
        return [v for arg in call_args(value) for v in used_vars(arg)]
    if isinstance(value, relax.Tuple):
        return [v for item in value.fields for v in used_vars(item)]
    if isinstance(value, relax.TupleGetItem):
        return used_vars(value.tuple_value)
    if isinstance(value, tvm.ir.GenericConst):
        return []
    return list(relax.analysis.free_vars(value))


def call_args(call: relax.Call) -> list[Any]:
    """The tensors (and scalars) that a ``call_tir`` passes."""
    args = call.args[1]
    return list(args.fields) if isinstance(args, relax.Tuple) else [args]


def is_call(value: Any, op: str) -> bool:
    """Whether a value is a call of the operator named ``op``."""
    return isinstance(value, relax.Call) and getattr(value.op, "name", "") == op


def symbolic_vars(binding: Any) -> list[Any]:
    """Shape variables in the types and the value of a binding."""
    types = [binding.var.ty]
    if isinstance(binding, relax.MatchCast):
        types.append(binding.ty)
    elif isinstance(binding.value, relax.Call):
        types += list(binding.value.ty_args or [])
    found = [v for ty in types for v in relax.analysis.tir_vars_in_type(ty)]
    if not is_call_tir(binding.value):
        found += [v for v in vars_of(binding.value) if isinstance(v.ty, tvm.ir.PrimType)]
    return found


def operator_name(binding: Any) -> str:
    """What a binding that is no ``call_tir`` does, in a word."""
    if isinstance(binding, relax.MatchCast):
        return "match_cast"
    value = binding.value
    if isinstance(value, relax.Call):
        name = getattr(value.op, "name", None) or getattr(value.op, "name_hint", None)
        return str(name or getattr(value.op, "global_symbol", "call"))
    return type(value).__name__.lower()


def why_not_an_op(binding: Any) -> str:
    """Why a binding that is no ``call_tir`` is never fused."""
    name = operator_name(binding)
    if name == CALL_TIR_INPLACE:
        return "writes into one of its arguments (call_tir_inplace)"
    if isinstance(binding.value, relax.Call):
        return f"is a call of {name}, which is no call_tir"
    return f"is a {name}, which does no work of its own"


def tensor_types(ty: Any) -> list[Any]:
    """The types of all results, one or a tuple of them."""
    return list(ty.fields) if isinstance(ty, relax.TupleType) else [ty]


def tensor_bytes(ty: Any) -> int:
    """Bytes of a dense tensor; 0 where its shape is not constant."""
    shape = getattr(ty.shape, "values", None)
    count = static_product(shape) if shape is not None else None
    return 0 if count is None else count * element_bytes(ty.dtype)


@dataclass(frozen=True)
class TensorType:
    """Shape and element type of a tensor.

    Parameters
    ----------
    shape : tuple of str
        Its extents; a symbolic one as an expression. Empty for a scalar or where it is not known.
    dtype : str
        The element type.
    nbytes : int or None
        Its size in bytes; None where some extent is not known.
    """

    shape: tuple[str, ...]
    dtype: str
    nbytes: int | None


def describe_type(ty: Any) -> TensorType:
    """The type of a tensor as plain data; of something else, nothing is known."""
    shape = getattr(getattr(ty, "shape", None), "values", None)
    dtype = str(getattr(ty, "dtype", None) or "")
    extents = None if shape is None else static_product(shape)
    nbytes = extents * element_bytes(dtype) if dtype and extents is not None else None
    return TensorType(tuple(map(_extent, shape or ())), dtype, nbytes)


def _extent(extent: Any) -> str:
    """An extent as people write it: ``128``, ``n * 2``."""
    return _INTEGER.sub(r"\1", str(extent))
