"""The pass that does it all, from legalized ops to scheduled kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import tvm
from tvm import relax
from tvm.s_tir import meta_schedule

from ..analysis import Op
from ..limits import Limits
from ..policy import DEFAULT_POLICY, Policy
from .annotate_op_kind import AnnotateOpKind
from .fuse_ops import FuseOps
from .reshapes_to_views import ReshapesToViews
from .schedule import Schedule


@tvm.transform.module_pass(opt_level=0, name="tvm_fusion.OperatorFusion")
class OperatorFusion:
    """Fuse the ops of a legalized module and schedule what comes out.

    Runs AnnotateOpKind, FoldConstant, FuseOps, FuseTIR, ReshapesToViews, then applies the
    records of a current MetaSchedule database, then Schedule.

    Parameters
    ----------
    policy, limits, no_fuse, feedback
        As for :class:`tvm_fusion.transform.FuseOps`.

    Examples
    --------
    Before: three ``call_tir`` of exp, add and sum. After: one ``call_tir`` of a scheduled
    ``fused_exp_add_sum``.
    """

    def __init__(
        self,
        policy: str | Policy = DEFAULT_POLICY,
        limits: Limits | None = None,
        no_fuse: Iterable[str] | Callable[[Op], bool] = (),
        feedback: str = "auto",
    ) -> None:
        self.passes = fusion_passes(policy, limits, no_fuse, feedback)

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        """Run the passes; ``mod`` itself is left as it is."""
        return tvm.transform.Sequential(self.passes)(mod)


def fusion_passes(
    policy: str | Policy,
    limits: Limits | None,
    no_fuse: Iterable[str] | Callable[[Op], bool],
    feedback: str,
) -> list[tvm.transform.Pass]:
    """The passes between LegalizeOps and the lowering of dataflow, in order."""
    return [
        AnnotateOpKind(),
        relax.transform.FoldConstant(),
        FuseOps(policy, limits, no_fuse, feedback),
        relax.transform.FuseTIR(),
        ReshapesToViews(),
        ApplyDatabase(),
        Schedule(limits),
    ]


@tvm.transform.module_pass(opt_level=0, name="tvm_fusion.ApplyDatabase")
class ApplyDatabase:
    """Use what a current MetaSchedule database has a record for; nothing where none is current."""

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        """Run the pass."""
        if meta_schedule.Database.current() is None:
            return mod
        return relax.transform.MetaScheduleApplyDatabase()(mod)
