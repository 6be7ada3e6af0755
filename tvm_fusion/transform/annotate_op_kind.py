"""The pass that writes down what every PrimFunc is."""

from __future__ import annotations

import tvm
from tvm import tirx

from ..analysis import describe
from ..analysis.primfunc import OP_KIND_ATTR
from ..analysis.relax_graph import GROUP_ATTR


@tvm.transform.module_pass(opt_level=0, name="tvm_fusion.AnnotateOpKind")
class AnnotateOpKind:
    """Annotate every PrimFunc with its op kind, in the attribute ``tvm_fusion.op_kind``.

    A PrimFunc that carries the attribute already keeps it, so that a user can overrule the
    analysis: ``func.with_attr("tvm_fusion.op_kind", "BARRIER")`` keeps an op out of all groups.

    Examples
    --------
    Before::

        @T.prim_func(private=True)
        def exp(...): T.func_attr({"tirx.noalias": True})

    After::

        @T.prim_func(private=True)
        def exp(...): T.func_attr({"tirx.noalias": True, "tvm_fusion.op_kind": "ELEMENTWISE"})
    """

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        """Run the pass; ``mod`` itself is left as it is."""
        functions = {}
        for gvar, func in mod.functions.items():
            if isinstance(func, tirx.PrimFunc) and _is_open(func):
                func = func.with_attr(OP_KIND_ATTR, describe(func).kind.value)
            functions[gvar] = func
        return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _is_open(func: tirx.PrimFunc) -> bool:
    """Whether a PrimFunc is neither annotated nor a finished group."""
    attrs = func.attrs or {}
    return OP_KIND_ATTR not in attrs and GROUP_ATTR not in attrs
