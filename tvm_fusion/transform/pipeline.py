"""The pipeline ``tvm_fusion``: TVM's own for the target, with its fusion phase replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

import tvm

from ..analysis import Op
from ..errors import TargetError
from ..limits import Limits
from ..policy import DEFAULT_POLICY, Policy, get_policy
from .operator_fusion import fusion_passes
from .options import check_feedback

#: Passes of TVM's legalization phase that ours take the place of.
_REPLACED = ("AnnotateTIROpPattern", "FoldConstant", "FuseOps", "FuseTIR", "ApplyDefaultSchedule")


def pipeline(
    policy: str | Policy = DEFAULT_POLICY,
    limits: Limits | None = None,
    no_fuse: Iterable[str] | Callable[[Op], bool] = (),
    feedback: str = "auto",
) -> tvm.transform.Pass:
    """Make the pipeline, as ``relax.get_pipeline("tvm_fusion", policy=...)`` does.

    Library dispatch, legalization, dataflow lowering and finalisation are TVM's own for the
    current target (``relax.backend``); what lies between is :class:`OperatorFusion`'s. Other
    targets than CUDA keep TVM's own scheduling.

    Parameters
    ----------
    policy, limits, no_fuse, feedback
        As for :class:`tvm_fusion.transform.FuseOps`.

    Returns
    -------
    tvm.transform.Pass

    Raises
    ------
    TargetError
        When it runs: no target is current.
    """
    check_feedback(feedback, limits)
    chosen = get_policy(policy)

    @tvm.transform.module_pass(opt_level=0, name="tvm_fusion.pipeline")
    def run(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        target = tvm.target.Target.current(allow_none=True)
        if target is None:
            raise TargetError(
                "the pipeline 'tvm_fusion' needs a target: use tvm.compile(mod, target, "
                "relax_pipeline='tvm_fusion'), or run it inside of `with target:`"
            )
        stock = _stock_phases(target)
        fusion = fusion_passes(chosen, limits, no_fuse, feedback)
        passes = [
            *stock.library_dispatch_passes(target),
            *_with_fusion(stock.legalize_passes(target), fusion, target),
            *stock.dataflow_lower_passes(target),
            *stock.finalize_passes(target),
        ]
        return tvm.transform.Sequential(passes)(mod)

    return run


def _stock_phases(target: tvm.target.Target) -> Any:
    """TVM's module with the phases of the pipeline for ``target``.

    ``relax.pipeline.dataflow_lower_passes`` and ``finalize_passes`` are meant to choose it, but
    look in ``relax.backend.cuda``, which does not export them (TVM 0.27).
    """
    kind = target.kind.name
    if kind == "opencl" and "adreno" in target.keys:
        home = "adreno"
    elif kind in ("cuda", "rocm"):
        home = kind
    elif "gpu" in target.keys:
        home = "gpu_generic"
    else:
        home = "cpu_generic"
    return import_module(f"tvm.relax.backend.{home}.pipeline")


def _with_fusion(
    stock: list[tvm.transform.Pass], fusion: list[tvm.transform.Pass], target: tvm.target.Target
) -> list[tvm.transform.Pass]:
    """TVM's legalization phase with our passes where its own fusion starts."""
    kept_scheduling = target.kind.name != "cuda"
    result: list[tvm.transform.Pass] = []
    placed = False
    for stock_pass in stock:
        name = str(stock_pass.info.name)
        if name == "ApplyDefaultSchedule" and kept_scheduling:
            result.append(stock_pass)
        elif name in _REPLACED:
            if not placed and name == "AnnotateTIROpPattern":
                result.extend(fusion)
                placed = True
        else:
            result.append(stock_pass)
    return result if placed else [*result, *fusion]
