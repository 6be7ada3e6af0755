"""The pass that makes views of pure reshapes and forgets their kernels."""

from __future__ import annotations

import tvm
from tvm import relax

from ..analysis.traffic import called_functions
from .build import drop_unreferenced


@tvm.transform.module_pass(opt_level=0, name="tvm_fusion.ReshapesToViews")
class ReshapesToViews:
    """Run TVM's RewriteDataflowReshape and drop the PrimFuncs that nothing calls any more.

    TVM's pass leaves them in the module, where each is compiled to a kernel that is never
    launched.

    Examples
    --------
    Before::

        lv = R.call_tir(cls.reshape, (x,), out_ty=R.Tensor((4, 32), "float32"))

    After::

        lv = R.reshape(x, R.shape([4, 32]))   # cls.reshape is gone if this was its only call
    """

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        """Run the pass; ``mod`` itself is left as it is."""
        called = called_functions(mod)
        return drop_unreferenced(relax.transform.RewriteDataflowReshape()(mod), called)
