"""tvm_fusion: operator fusion for Apache TVM on NVIDIA GPUs, as a plugin.

>>> import tvm_fusion as tf
>>> seq = tvm.transform.Sequential(
...     [relax.transform.LegalizeOps(), tf.OperatorFusion()])  # doctest: +SKIP

Public names are imported when they are first used, so that ``import tvm`` stays quick.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Quiet unless the program that uses the package sets up logging.
logging.getLogger(__name__).addHandler(logging.NullHandler())

if TYPE_CHECKING:
    from . import analysis, codegen, emulator, policy, report, transform, workloads
    from .analysis import ClassicKind, DataflowGraph, Op, OpKind
    from .errors import (
        CompilerError,
        EmulatorError,
        GraphError,
        LimitsError,
        ModelError,
        PolicyError,
        ReportError,
        TargetError,
        TVMFusionError,
    )
    from .export import export_library
    from .limits import Limits
    from .planning import Plan
    from .policy import (
        Decision,
        Group,
        Partition,
        Policy,
        Reason,
        SiblingDecision,
        register_policy,
    )
    from .report import FusionReport, explain
    from .trace import Trace, record
    from .transform import OperatorFusion

_HOME = {
    "ClassicKind": "analysis",
    "CompilerError": "errors",
    "DataflowGraph": "analysis",
    "Decision": "policy",
    "EmulatorError": "errors",
    "FusionReport": "report",
    "GraphError": "errors",
    "Group": "policy",
    "Limits": "limits",
    "LimitsError": "errors",
    "ModelError": "errors",
    "Op": "analysis",
    "OpKind": "analysis",
    "OperatorFusion": "transform",
    "Partition": "policy",
    "Plan": "planning",
    "Policy": "policy",
    "PolicyError": "errors",
    "Reason": "policy",
    "ReportError": "errors",
    "SiblingDecision": "policy",
    "TVMFusionError": "errors",
    "TargetError": "errors",
    "Trace": "trace",
    "explain": "report",
    "export_library": "export",
    "record": "trace",
    "register_policy": "policy",
}
_MODULES = ("analysis", "codegen", "emulator", "policy", "report", "transform", "workloads")

__all__ = [
    "ClassicKind",
    "CompilerError",
    "DataflowGraph",
    "Decision",
    "EmulatorError",
    "FusionReport",
    "GraphError",
    "Group",
    "Limits",
    "LimitsError",
    "ModelError",
    "Op",
    "OpKind",
    "OperatorFusion",
    "Partition",
    "Plan",
    "Policy",
    "PolicyError",
    "Reason",
    "ReportError",
    "SiblingDecision",
    "TVMFusionError",
    "TargetError",
    "Trace",
    "analysis",
    "codegen",
    "emulator",
    "explain",
    "export_library",
    "policy",
    "record",
    "register_policy",
    "report",
    "transform",
    "workloads",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
