"""Builds the pieces of a module that passes add: typed as TVM's checks want them, and named."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tvm
from tvm import relax


class Names:
    """Function names of a module, and new ones that clash with none of them."""

    def __init__(self, mod: tvm.IRModule) -> None:
        self._taken = {gvar.name_hint for gvar in mod.functions}

    def new_var(self, name: str, function: Any) -> Any:
        """A global variable called ``name``, or ``name_1`` and so on where that is taken."""
        candidate, n = name, 0
        while candidate in self._taken:
            n += 1
            candidate = f"{name}_{n}"
        self._taken.add(candidate)
        return function_var(candidate, function)


def function_var(name: str, function: Any) -> Any:
    """A global variable that is typed as ``function``, as TVM's normaliser wants it."""
    gvar = tvm.ir.GlobalVar(name)
    relax.expr._update_type(gvar, function.ty)
    return gvar


def make_seq(blocks: Sequence[Any], body: Any) -> relax.SeqExpr:
    """A sequence of binding blocks, typed as its result."""
    made = relax.SeqExpr(list(blocks), body)
    relax.expr._update_type(made, body.ty)
    return made


def make_call_tir(gvar: Any, args: Sequence[Any], result_type: Any) -> relax.Call:
    """A ``call_tir`` of ``gvar``."""
    op = tvm.ir.Op.get("relax.call_tir")
    return relax.Call(op, [gvar, relax.Tuple(list(args))], None, [result_type], ret_ty=result_type)


def drop_unreferenced(mod: tvm.IRModule, names: Iterable[str]) -> tvm.IRModule:
    """``mod`` without those of the private functions ``names`` that nothing refers to."""
    used: set[str] = set()
    for func in mod.functions.values():
        if isinstance(func, relax.Function):
            used.update(gvar.name_hint for gvar in relax.analysis.all_global_vars(func))
    gone = set(names) - used
    functions = {
        gvar: func
        for gvar, func in mod.functions.items()
        if gvar.name_hint not in gone or "global_symbol" in (func.attrs or {})
    }
    return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
