"""The pass that splits PrimFuncs which no single kernel can hold into their blocks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, s_tir, tirx

from ..analysis import OpKind, describe
from ..analysis.blocks import iter_params, loads_of, root_nests
from ..analysis.primfunc import OP_KIND_ATTR, ORIGIN_ATTR
from .build import make_call_tir
from .rewrite_calls import Add, rewrite_calls


@tvm.transform.module_pass(opt_level=0, name="tvm_fusion.SplitComposites")
class SplitComposites:
    """Make one PrimFunc of each block of a composite PrimFunc (attention is one of 15 blocks).

    The intermediate buffers become tensors of the Relax function, and the blocks ops of their own
    kinds that the policy can group. A function that needs a shape variable which its own arguments
    do not tell is left whole.

    Parameters
    ----------
    keep : iterable of str
        PrimFuncs, or variables that calls are bound to, that are left whole.

    Examples
    --------
    Before::

        lv = R.call_tir(cls.attention, (q, k, v), out_ty=...)

    After::

        attention_T_transpose = R.call_tir(cls.attention_T_transpose, (q,), out_ty=...)
        ...
        lv = R.call_tir(cls.attention_T_transpose_4, (...,), out_ty=...)
    """

    def __init__(self, keep: Iterable[str] = ()) -> None:
        self.keep = frozenset(keep)

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        """Run the pass; ``mod`` itself is left as it is."""
        pieces_of: dict[Any, list[_Piece] | None] = {}

        def rule(binding: relax.VarBinding, add: Add) -> Any:
            call = binding.value
            gvar = call.args[0]
            if not self.keep.isdisjoint((gvar.name_hint, binding.var.name)):
                return None
            func = mod.functions.get(gvar)
            if len(call.args) > 2 or not isinstance(func, tirx.PrimFunc):
                return None
            if isinstance(call.ty_args[0], relax.TupleType) or not _is_composite(func):
                return None
            if call.ty_args[0].vdevice is not None or "target" in (func.attrs or {}):
                return None
            if gvar not in pieces_of:
                pieces_of[gvar] = _split(func, gvar.name_hint, add)
            pieces = pieces_of[gvar]
            return None if pieces is None else _emit(call, func, pieces)

        return rewrite_calls(mod, rule)


class _Piece:
    """One block as a PrimFunc: its global variable, what it reads, and the buffer it writes."""

    def __init__(self, gvar: Any, reads: list[Any], write: Any, name: str) -> None:
        self.gvar = gvar
        self.reads = reads
        self.write = write
        self.name = name


def _is_composite(func: tirx.PrimFunc) -> bool:
    kind = (func.attrs or {}).get(OP_KIND_ATTR)
    if kind is not None:
        return str(kind) == OpKind.COMPOSITE.value
    return describe(func).kind is OpKind.COMPOSITE


def _split(func: tirx.PrimFunc, name: str, add: Add) -> list[_Piece] | None:
    made = []
    for nest in root_nests(func):
        piece = _piece_func(func, nest)
        if piece is None:
            return None
        made.append(piece)
    written = [write for _, _, write, _ in made]
    if len(set(written)) != len(written) or written[-1] not in set(iter_params(func)):
        return None  # some buffer is written piece by piece: the pieces are not independent
    return [
        _Piece(
            add(prim.with_attr(ORIGIN_ATTR, name), f"{name}_{block_name}"),
            reads,
            write,
            f"{name}_{block_name}",
        )
        for prim, reads, write, block_name in made
    ]


def _piece_func(func: tirx.PrimFunc, nest: Any) -> tuple[tirx.PrimFunc, list[Any], Any, str] | None:
    """A PrimFunc of one loop nest, with the buffers it reads and the one it writes."""
    blocks: list[Any] = []
    tvm_ffi.structural_walk(nest, (s_tir.SBlock, blocks.append))
    stores: list[Any] = []
    tvm_ffi.structural_walk(nest, (tirx.BufferStore, stores.append))
    written = list(dict.fromkeys(store.buffer for store in stores))
    if len(blocks) != 1 or len(written) != 1:
        return None
    if blocks[0].init is None and any(load.source in written for load in loads_of(nest)):
        return None  # it updates what is there already
    reads = list(
        dict.fromkeys(load.source for load in loads_of(nest) if load.source not in written)
    )
    params = [*reads, written[0]]
    root = s_tir.SBlockRealize([], tirx.IntImm("bool", 1), s_tir.SBlock([], [], [], "root", nest))
    attrs = {k: v for k, v in (func.attrs or {}).items() if k in ("tirx.noalias", "s_tir")}
    piece = tirx.PrimFunc(params, root, func.ret_type, tvm.ir.make_node("ir.DictAttrs", **attrs))
    told = _with_told_extents(piece, params)
    return None if told is None else (told, reads, written[0], blocks[0].name_hint)


def _with_told_extents(piece: tirx.PrimFunc, params: list[Any]) -> tirx.PrimFunc | None:
    """The piece with every extent that its tensors do not tell as such (``b * 6``) a variable.

    None where a variable is left that the shapes of its tensors do not tell.
    """
    told = {v for buffer in params for extent in buffer.shape for v in _bare(extent)}
    compound = [
        extent
        for buffer in params
        for extent in buffer.shape
        if not isinstance(extent, tirx.IntImm | tirx.Var) and not set(_symbols(extent)) <= told
    ]
    for number, extent in enumerate(compound):
        var = tirx.Var(f"extent_{number}", str(extent.ty.dtype))

        def replace(expr: Any, extent: Any = extent, var: Any = var) -> Any:
            return var if tvm_ffi.structural_equal(expr, extent) else expr

        piece = tvm_ffi.structural_map(piece, (type(extent), replace))
    buffers = iter_params(piece)
    told = {v for buffer in buffers for extent in buffer.ty.shape for v in _bare(extent)}
    needed = {v for loop in _loops(piece.body.block.body) for v in _symbols(loop.extent)}
    return piece if needed <= told else None


def _loops(nest: Any) -> list[Any]:
    loops = []
    while isinstance(nest, tirx.For):
        loops.append(nest)
        nest = nest.body
    return loops


def _bare(extent: Any) -> list[Any]:
    return [extent] if isinstance(extent, tirx.Var) else []


def _symbols(expr: Any) -> list[Any]:
    found: list[Any] = []
    tvm_ffi.structural_walk(expr, (tirx.Var, found.append))
    return found


def _emit(call: relax.Call, func: tirx.PrimFunc, pieces: list[_Piece]) -> tuple[list[Any], Any]:
    """The bindings of all pieces but the last, and the call of the last."""
    values: dict[Any, Any] = dict(zip(iter_params(func), call.args[1].fields, strict=False))
    symbols = _call_symbols(func, call)
    front = []
    for piece in pieces[:-1]:
        shape = [_substitute(extent, symbols) for extent in piece.write.shape]
        ty = relax.TensorType(shape, str(piece.write.dtype))
        var = relax.DataflowVar(piece.name, ty)
        value = make_call_tir(piece.gvar, [values[buffer] for buffer in piece.reads], ty)
        front.append(relax.VarBinding(var, value))
        values[piece.write] = var
    last = pieces[-1]
    args = [values[buffer] for buffer in last.reads]
    return front, make_call_tir(last.gvar, args, call.ty_args[0])


def _call_symbols(func: tirx.PrimFunc, call: relax.Call) -> dict[Any, Any]:
    """Values of the shape variables of a PrimFunc at one call."""
    symbols = {}
    for param, arg in zip(iter_params(func), call.args[1].fields, strict=False):
        for extent, value in zip(param.ty.shape, arg.ty.shape.values, strict=True):
            if isinstance(extent, tirx.Var):
                symbols[extent] = value
    return symbols


def _substitute(extent: Any, symbols: dict[Any, Any]) -> Any:
    if not symbols or isinstance(extent, int):
        return extent
    return tvm_ffi.structural_map(extent, ((tirx.Var, lambda var: symbols.get(var, var)),))
