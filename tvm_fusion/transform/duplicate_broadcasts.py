"""The pass that gives every reader of a broadcast tensor a broadcast of its own."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax, tirx

from ..analysis import OpKind, describe
from ..analysis.access import IndexMap, classify_load
from ..analysis.bindings import is_call_tir, owned_by_others, used_vars
from ..analysis.blocks import parse_blocks
from ..analysis.relax_graph import GROUP_ATTR
from .build import make_call_tir
from .rewrite_calls import Add, rewrite_calls


@tvm.transform.module_pass(opt_level=0, name="tvm_fusion.DuplicateBroadcasts")
class DuplicateBroadcasts:
    """Repeat ops that only spread a smaller tensor out, once for each op that reads the result.

    Reading the smaller tensor through the index map costs a reader nothing, and writing the larger
    one for several readers costs a kernel. An op of several readers could not be fused into all.
    Only where all readers are ops that can take an index map in is anything repeated.

    Examples
    --------
    Before::

        lv = R.call_tir(cls.broadcast_to, (x,), out_ty=R.Tensor((4, 64, 256), "float32"))
        a = R.call_tir(cls.matmul, (lv, w1), ...)
        b = R.call_tir(cls.matmul, (lv, w2), ...)

    After::

        lv = R.call_tir(cls.broadcast_to, (x,), out_ty=R.Tensor((4, 64, 256), "float32"))
        a = R.call_tir(cls.matmul, (lv, w1), ...)
        lv_1 = R.call_tir(cls.broadcast_to, (x,), out_ty=R.Tensor((4, 64, 256), "float32"))
        b = R.call_tir(cls.matmul, (lv_1, w2), ...)
    """

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        """Run the pass; ``mod`` itself is left as it is."""
        spread = _Broadcasts(mod)
        served: set[Any] = set()  # broadcasts whose first reader was seen

        def rule(binding: relax.VarBinding, _add: Add) -> Any:
            call = binding.value
            front: list[Any] = []
            args = list(call.args[1].fields) if isinstance(call.args[1], relax.Tuple) else []
            copies: dict[Any, Any] = {}
            for arg in dict.fromkeys(a for a in args if a in spread.worth_repeating):
                if arg not in served:
                    served.add(arg)
                    continue
                copies[arg] = relax.DataflowVar(arg.name, arg.ty)
                front.append(relax.VarBinding(copies[arg], spread.value_of[arg]))
            if not copies:
                return None
            replaced = [copies.get(arg, arg) for arg in args]
            return front, make_call_tir(call.args[0], replaced, call.ty_args[0])

        return rewrite_calls(mod, rule)


class _Broadcasts:
    """The broadcasts of a module, and who reads them."""

    def __init__(self, mod: tvm.IRModule) -> None:
        self.mod = mod
        self.value_of: dict[Any, Any] = {}
        readers: dict[Any, list[Any]] = {}
        for func in mod.functions.values():
            if isinstance(func, relax.Function) and not owned_by_others(func):
                for block in _dataflow_blocks(func):
                    for binding in block.bindings:
                        self.value_of[binding.var] = binding.value
                        for var in dict.fromkeys(used_vars(binding.value)):
                            readers.setdefault(var, []).append(binding.value)
        self.worth_repeating = {
            var
            for var, value in self.value_of.items()
            if isinstance(var, relax.DataflowVar)
            and len(readers.get(var, ())) > 1
            and self._is_broadcast(value)
            and all(map(self._takes_index_maps, readers[var]))
        }

    def _callee(self, value: Any) -> tirx.PrimFunc | None:
        if not is_call_tir(value) or len(value.args) > 2:
            return None
        func = self.mod.functions.get(value.args[0])
        attrs = getattr(func, "attrs", None) or {}
        free = isinstance(func, tirx.PrimFunc) and GROUP_ATTR not in attrs
        return func if free and not attrs.get("tirx.is_scheduled") else None

    def _is_broadcast(self, value: Any) -> bool:
        func = self._callee(value)
        if func is None or describe(func).kind is not OpKind.INJECTIVE:
            return False
        blocks = parse_blocks(func) or []
        if len(blocks) != 1 or len(blocks[0].loads) != 1 or describe(func).is_reshape:
            return False
        return classify_load(blocks[0], blocks[0].loads[0]) is IndexMap.BROADCAST

    def _takes_index_maps(self, value: Any) -> bool:
        func = self._callee(value)
        if func is None or value.op == tvm.ir.Op.get("relax.call_tir_inplace"):
            return False
        return describe(func).kind not in (OpKind.BARRIER, OpKind.COMPOSITE)


def _dataflow_blocks(func: relax.Function) -> list[relax.DataflowBlock]:
    found: list[relax.DataflowBlock] = []
    stack = [func.body]
    while stack:
        body = stack.pop()
        for block in body.blocks if isinstance(body, relax.SeqExpr) else ():
            if isinstance(block, relax.DataflowBlock):
                found.append(block)
            for binding in block.bindings:
                if isinstance(binding.value, relax.If):
                    stack += [binding.value.true_branch, binding.value.false_branch]
    return found
