"""Replaces call_tir bindings of a module one by one, for passes that do nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax, tirx

from ..analysis.bindings import is_call_tir, owned_by_others
from .build import Names, drop_unreferenced, make_seq

#: Adds a PrimFunc to the module under a name, or one like it, and returns its global variable.
Add = Callable[[tirx.PrimFunc, str], Any]

#: (binding, add) -> None to keep the binding, or bindings to put in front of it and its new value.
Rule = Callable[[relax.VarBinding, Add], "tuple[list[Any], Any] | None"]


def rewrite_calls(mod: tvm.IRModule, rule: Rule) -> tvm.IRModule:
    """A module in which ``rule`` was applied to every ``call_tir``.

    PrimFuncs that nothing calls any more are dropped; the input module is left as it is.

    Parameters
    ----------
    mod : tvm.IRModule
        The module.
    rule : callable
        See :data:`Rule`.
    """
    rewriter = _Rewriter(mod, rule)
    return rewriter.run()


class _Rewriter:
    def __init__(self, mod: tvm.IRModule, rule: Rule) -> None:
        self.mod = mod
        self.rule = rule
        self.names = Names(mod)
        self.added: dict[Any, Any] = {}
        self.replaced: set[str] = set()

    def run(self) -> tvm.IRModule:
        functions: dict[Any, Any] = {}
        for gvar, func in self.mod.functions.items():
            if isinstance(func, relax.Function) and not owned_by_others(func):
                body = self._body(func.body)
                if body is not func.body:
                    func = relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)
            functions[gvar] = func
        if not self.replaced:
            return self.mod
        functions.update(self.added)
        mod = tvm.IRModule(functions, attrs=self.mod.attrs, global_infos=self.mod.global_infos)
        return drop_unreferenced(mod, self.replaced)

    def _body(self, body: Any) -> Any:
        if not isinstance(body, relax.SeqExpr):
            return body
        before = len(self.replaced), len(self.added)
        blocks = []
        for block in body.blocks:
            bindings = [made for b in block.bindings for made in self._binding(b, block)]
            blocks.append(type(block)(bindings))
        if before == (len(self.replaced), len(self.added)):
            return body
        return make_seq(blocks, body.body)

    def _binding(self, binding: Any, block: Any) -> list[Any]:
        value = binding.value
        if not isinstance(binding, relax.VarBinding):
            return [binding]
        if isinstance(value, relax.If):
            made = relax.If(
                value.cond, self._body(value.true_branch), self._body(value.false_branch)
            )
            return [relax.VarBinding(binding.var, relax.BlockBuilder().normalize(made))]
        if not is_call_tir(value) or not isinstance(block, relax.DataflowBlock):
            return [binding]
        result = self.rule(binding, self._add)
        if result is None:
            return [binding]
        self.replaced.add(value.args[0].name_hint)
        front, new_value = result
        return [*front, relax.VarBinding(binding.var, new_value)]

    def _add(self, func: tirx.PrimFunc, name: str) -> Any:
        gvar = self.names.new_var(name, func)
        self.added[gvar] = func
        return gvar
