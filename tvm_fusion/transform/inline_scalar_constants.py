"""The pass that makes immediates of 0-d constant arguments."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import relax, s_tir, tirx

from ..analysis.blocks import vars_of
from ..analysis.primfunc import OP_KIND_ATTR, ORIGIN_ATTR, describe
from ..analysis.relax_graph import GROUP_ATTR
from .build import make_call_tir
from .rewrite_calls import Add, rewrite_calls


@tvm.transform.module_pass(opt_level=0, name="tvm_fusion.InlineScalarConstants")
class InlineScalarConstants:
    """Specialise PrimFuncs to the 0-d constants that they are called with.

    A constant scalar is a tensor argument after LegalizeOps: the kernel would load it from global
    memory, and ``take(x, 3)`` would look like a gather by data. Scheduled PrimFuncs are left alone.

    Examples
    --------
    Before::

        lv = R.call_tir(cls.where, (m, x, R.const(-1e9, "float32")), out_ty=...)

    After::

        lv = R.call_tir(cls.where_1, (m, x), out_ty=...)   # -1e9 stands in the PrimFunc
    """

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        """Run the pass; ``mod`` itself is left as it is."""
        known: dict[Any, Any] = {}

        def rule(binding: relax.VarBinding, add: Add) -> Any:
            call = binding.value
            if len(call.args) > 2 or not isinstance(call.args[1], relax.Tuple):
                return None
            args = list(call.args[1].fields)
            scalars = {i: _scalar(arg) for i, arg in enumerate(args) if _is_scalar(arg)}
            func = mod.functions.get(call.args[0])
            if not scalars or not _can_specialise(func):
                return None
            key = (call.args[0], tuple(sorted((i, str(v)) for i, v in scalars.items())))
            if key not in known:
                made = _specialise(func, scalars)
                known[key] = (
                    None
                    if made is None
                    else add(
                        made.with_attr(ORIGIN_ATTR, call.args[0].name_hint), call.args[0].name_hint
                    )
                )
            if known[key] is None:
                return None
            kept = [arg for i, arg in enumerate(args) if i not in scalars]
            return [], make_call_tir(known[key], kept, call.ty_args[0])

        return rewrite_calls(mod, rule)


def _is_scalar(arg: Any) -> bool:
    return (
        isinstance(arg, tvm.ir.GenericConst)
        and isinstance(arg.ty, relax.TensorType)
        and arg.ty.ndim == 0
    )


def _scalar(constant: Any) -> Any:
    """The immediate of a 0-d constant."""
    return tirx.const(constant.value.numpy().item(), str(constant.ty.dtype))


def _can_specialise(func: Any) -> bool:
    attrs = func.attrs or {}
    return (
        isinstance(func, tirx.PrimFunc)
        and GROUP_ATTR not in attrs
        and not attrs.get("tirx.is_scheduled")
    )


def _specialise(func: tirx.PrimFunc, scalars: dict[int, Any]) -> tirx.PrimFunc | None:
    """``func`` without the scalar parameters, their loads replaced by immediates.

    None where a parameter is used otherwise than by a load, as by its address.
    """
    value_of = {func.params[i]: value for i, value in scalars.items()}

    def load(node: Any) -> Any:
        return value_of.get(node.source, node)

    def block(node: Any) -> Any:
        return s_tir.SBlock(
            node.iter_vars,
            [region for region in node.reads if region.source not in value_of],
            node.writes,
            node.name_hint,
            node.body,
            node.init,
            node.alloc_buffers,
            node.match_buffers,
            node.annotations,
        )

    body = tvm_ffi.structural_map(func.body, ((tvm.ir.TensorLoad, load), (s_tir.SBlock, block)))
    if any(var in value_of for var in vars_of(body)):
        return None
    params = [param for i, param in enumerate(func.params) if i not in scalars]
    made = tirx.PrimFunc(params, body, func.ret_type, func.attrs)
    # A kind that was read off the function may be another now: a constant index is no data.
    kind = (func.attrs or {}).get(OP_KIND_ATTR)
    read_off = kind is not None and str(kind) == describe(func).kind.value
    return made.without_attr(OP_KIND_ATTR) if read_off else made
