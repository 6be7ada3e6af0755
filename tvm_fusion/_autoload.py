"""What TVM loads at the end of ``import tvm``: names only, nothing heavy.

The entry point ``tvm.backends`` calls :func:`autoload`. It registers the pipeline and the passes
under their names; the modules behind them are imported when somebody asks for them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

#: Passes that are global functions, ``tvm.get_global_func("tvm_fusion.transform.<name>")``.
PASSES = (
    "AnnotateOpKind",
    "FuseOps",
    "InlineScalarConstants",
    "MergeDataflowBlocks",
    "OperatorFusion",
    "ReshapesToViews",
    "Schedule",
    "DuplicateBroadcasts",
    "SplitComposites",
)

PIPELINE = "tvm_fusion"


def autoload() -> None:
    """Register the pipeline and the passes. Does nothing in a runtime-only TVM, or twice."""
    from tvm.base import _RUNTIME_ONLY

    if _RUNTIME_ONLY:
        return
    from tvm.relax import pipeline
    from tvm_ffi import register_global_func

    if PIPELINE in pipeline.PIPELINE_MAP:
        return
    pipeline.register_pipeline(PIPELINE)(_pipeline)
    for name in PASSES:
        register_global_func(f"tvm_fusion.transform.{name}", _maker(name), override=True)


def _pipeline(**options: Any) -> Any:
    return import_module("tvm_fusion.transform").pipeline(**options)


def _maker(name: str) -> Any:
    return lambda *args: getattr(import_module("tvm_fusion.transform"), name)(*args)
