"""The pass that makes one dataflow block of several where nothing of effect lies between them."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx

from ..analysis import OpKind, describe
from ..analysis.bindings import is_call_tir, owned_by_others
from ..analysis.blocks import loads_of
from .build import make_seq

#: Calls that only check or print: what is pure may be computed before them.
_ONLY_CHECKS = frozenset(
    {"relax.assert_op", "relax.print", "relax.run.assert_op", "relax.run.print"}
)


@tvm.transform.module_pass(opt_level=0, name="tvm_fusion.MergeDataflowBlocks")
class MergeDataflowBlocks:
    """Merge dataflow blocks that follow each other, or that only assertions and prints separate.

    A model that checks its input in the middle falls into many dataflow blocks, and no group
    reaches across. Pure bindings are moved in front of the checks, unless one of them could fail
    where the check would have: an integer division, an index that was loaded, a call that is no
    ``call_tir``. Checks keep their order among themselves, and all still come before the function
    returns.

    Examples
    --------
    Before::

        with R.dataflow(): a = ...; R.output(a)
        R.assert_op(a_is_fine)
        with R.dataflow(): b = f(a); R.output(b)

    After::

        with R.dataflow(): a = ...; b = f(a); R.output(a, b)
        R.assert_op(a_is_fine)
    """

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        """Run the pass; ``mod`` itself is left as it is."""
        functions = {}
        for gvar, func in mod.functions.items():
            if isinstance(func, relax.Function) and not owned_by_others(func):
                body = _merge(mod, func.body)
                if body is not func.body:
                    func = relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)
            functions[gvar] = func
        return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _merge(mod: tvm.IRModule, body: Any) -> Any:
    """The body with its outermost dataflow blocks merged; the same object where none were."""
    if not isinstance(body, relax.SeqExpr):
        return body
    merged: list[tuple[bool, list[Any]]] = []  # (is dataflow, bindings)
    for block in body.blocks:
        dataflow = isinstance(block, relax.DataflowBlock)
        bindings = list(block.bindings)
        if dataflow and merged and merged[-1][0]:
            merged[-1][1].extend(bindings)
        elif (
            dataflow
            and len(merged) > 1
            and merged[-2][0]
            and all(_only_checks(b) for b in merged[-1][1])
            and all(_cannot_fail(mod, b) for b in bindings)
        ):
            merged[-2][1].extend(bindings)
        elif not dataflow and merged and not merged[-1][0]:
            merged[-1][1].extend(bindings)
        else:
            merged.append((dataflow, bindings))
    if len(merged) == len(body.blocks):
        return body
    blocks = [
        relax.DataflowBlock(bindings) if dataflow else relax.BindingBlock(bindings)
        for dataflow, bindings in merged
    ]
    return make_seq(blocks, body.body)


def _only_checks(binding: Any) -> bool:
    call = binding.value
    if not isinstance(binding, relax.VarBinding) or not isinstance(call, relax.Call):
        return False
    name = getattr(call.op, "name", None) or getattr(call.op, "global_symbol", "")
    return str(name) in _ONLY_CHECKS


def _cannot_fail(mod: tvm.IRModule, binding: Any) -> bool:
    """Whether a binding may be computed although a check in front of it would fail."""
    value = binding.value
    if isinstance(value, relax.Var | relax.Tuple | relax.TupleGetItem | tvm.ir.GenericConst):
        return isinstance(binding, relax.VarBinding)
    if not is_call_tir(value):
        return False
    func = mod.functions.get(value.args[0])
    return (
        isinstance(func, tirx.PrimFunc)
        and describe(func).kind is not OpKind.BARRIER
        and not _divides_integers(func)
    )


def _divides_integers(func: tirx.PrimFunc) -> bool:
    """Whether an integer is divided by something that was loaded."""
    divisors: list[Any] = []
    for kind in (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod):
        tvm_ffi.structural_walk(func.body, (kind, lambda node: divisors.append(node.b)))
    return any("int" in str(divisor.ty.dtype) and loads_of(divisor) for divisor in divisors)
