"""Why a pair of ops was fused or not: one class a reason, with its figures as fields."""

from .base import (
    DUPLICATED,
    FUSED,
    POLICIES,
    REFUSED,
    VERDICTS,
    Decision,
    PairReason,
    Reason,
    SiblingDecision,
)
from .budgets import (
    OutOfFusions,
    RowDoesNotFit,
    SharedMemory,
    TooDeep,
    TooManyArgs,
    TooManyOps,
)
from .chains import ChainClosed, ManyConsumers, ManyProducers, SiblingsApart
from .contractions import (
    BeforeContraction,
    BehindContraction,
    BesideContraction,
    MovedBeforeContraction,
    TwoContractions,
)
from .example import Example
from .kernels import (
    LowOccupancy,
    OverLimit,
    ScheduleFailed,
    SeveralKernels,
    Spills,
    TooManyRegisters,
)
from .ops import Barrier, Blocked, GatherInside, UnreadableNests
from .paths import (
    Cyclic,
    KindsDoNotMatch,
    PathBlocked,
    SeveralReaders,
    TooLargeToTry,
    TwoAnchors,
)
from .plans import (
    NoBenefit,
    NoCommonAxis,
    NoPlan,
    Recompute,
    SymbolicRow,
    TooManyNests,
)
from .together import Duplicated, Fused, View

__all__ = [
    "DUPLICATED",
    "FUSED",
    "POLICIES",
    "REFUSED",
    "VERDICTS",
    "Barrier",
    "BeforeContraction",
    "BehindContraction",
    "BesideContraction",
    "Blocked",
    "ChainClosed",
    "Cyclic",
    "Decision",
    "Duplicated",
    "Example",
    "Fused",
    "GatherInside",
    "KindsDoNotMatch",
    "LowOccupancy",
    "ManyConsumers",
    "ManyProducers",
    "MovedBeforeContraction",
    "NoBenefit",
    "NoCommonAxis",
    "NoPlan",
    "OutOfFusions",
    "OverLimit",
    "PairReason",
    "PathBlocked",
    "Reason",
    "Recompute",
    "RowDoesNotFit",
    "ScheduleFailed",
    "SeveralKernels",
    "SeveralReaders",
    "SharedMemory",
    "SiblingDecision",
    "SiblingsApart",
    "Spills",
    "SymbolicRow",
    "TooDeep",
    "TooLargeToTry",
    "TooManyArgs",
    "TooManyNests",
    "TooManyOps",
    "TooManyRegisters",
    "TwoAnchors",
    "TwoContractions",
    "UnreadableNests",
    "View",
]
