"""What each PrimFunc is, and how the ops of a function depend on each other."""

from .graph import DataflowGraph, Op
from .op_kind import ClassicKind, FusePattern, OpKind
from .primfunc import Description, describe

__all__ = ["ClassicKind", "DataflowGraph", "Description", "FusePattern", "Op", "OpKind", "describe"]
