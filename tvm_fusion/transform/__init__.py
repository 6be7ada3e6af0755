"""The passes that a user sees, one a file."""

from .annotate_op_kind import AnnotateOpKind
from .duplicate_broadcasts import DuplicateBroadcasts
from .fuse_ops import FuseOps
from .inline_scalar_constants import InlineScalarConstants
from .merge_dataflow_blocks import MergeDataflowBlocks
from .operator_fusion import ApplyDatabase, OperatorFusion
from .pipeline import pipeline
from .reshapes_to_views import ReshapesToViews
from .schedule import Schedule
from .split_composites import SplitComposites

__all__ = [
    "AnnotateOpKind",
    "ApplyDatabase",
    "DuplicateBroadcasts",
    "FuseOps",
    "InlineScalarConstants",
    "MergeDataflowBlocks",
    "OperatorFusion",
    "ReshapesToViews",
    "Schedule",
    "SplitComposites",
    "pipeline",
]
