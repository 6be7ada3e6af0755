"""What a build decided and what it saves, as data first, then as text, pages and graphs."""

from .build import build_and_explain, explain
from .data import (
    EdgeEntry,
    GroupEntry,
    KernelEntry,
    OpEntry,
    ReasonEntry,
    ReportData,
    SiblingEntry,
)
from .detail import GroupDetail
from .diff import ReportDiff
from .fusion_report import FusionReport
from .text import make_console, render

__all__ = [
    "EdgeEntry",
    "FusionReport",
    "GroupDetail",
    "GroupEntry",
    "KernelEntry",
    "OpEntry",
    "ReasonEntry",
    "ReportData",
    "ReportDiff",
    "SiblingEntry",
    "build_and_explain",
    "explain",
    "make_console",
    "render",
]
