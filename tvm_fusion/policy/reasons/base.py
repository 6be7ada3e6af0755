"""What every reason has, and the decision that it belongs to."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from .example import Example

#: What is decided about a pair.
FUSED = "fused"  #: both are in one kernel
DUPLICATED = "duplicated"  #: the same, the producer being repeated for this reader
REFUSED = "refused"  #: they are in different kernels

VERDICTS = (FUSED, DUPLICATED, REFUSED)

#: The policies of this package.
POLICIES = ("stitch", "dominator", "single_chain")


@dataclass(frozen=True)
class Reason:
    """Base class: one class a reason, with its figures as fields.

    ``code`` is stable across versions. ``template`` and ``remedy`` are filled from the fields; the
    remedy continues "would fuse if", and is empty where nothing is to be gained or done.
    ``policies`` names those that give the reason. ``scarce`` names what there is too little of.
    ``limit`` is the field of :class:`tvm_fusion.Limits` that refuses, and ``needed`` the field here
    with the value that it would have to have.

    Each concrete class has an ``example`` of which the reason holds, and a ``near_miss``, as close
    to it as can be, of which it does not. The pair of the near miss of a refusal is fused.
    ``docs/reasons.md`` is made of the docstrings and the examples (``page.py``).
    """

    code: ClassVar[str] = ""
    template: ClassVar[str] = ""
    verdict: ClassVar[str] = REFUSED
    remedy: ClassVar[str] = ""
    policies: ClassVar[tuple[str, ...]] = POLICIES
    scarce: ClassVar[str] = ""
    limit: ClassVar[str] = ""
    needed: ClassVar[str] = ""
    is_free: ClassVar[bool] = False  # nothing is moved although the two are in different kernels
    example: ClassVar[Example]
    near_miss: ClassVar[Example]

    @property
    def fused(self) -> bool:
        """Whether both ended up in one kernel."""
        return self.verdict != REFUSED

    @property
    def message(self) -> str:
        """One sentence with the names and figures in it."""
        return self.template.format(**asdict(self))

    @property
    def resource(self) -> str:
        """What there is too little of; empty where it is no matter of amounts."""
        return self.scarce

    @property
    def would_fuse_if(self) -> str:
        """What would have to be otherwise; empty where nothing is to be gained or done."""
        return self.remedy.format(**asdict(self))

    @property
    def limits_needed(self) -> dict[str, Any]:
        """Fields of Limits, and values at which this very check passes; empty where none helps."""
        return {self.limit: getattr(self, self.needed)} if self.limit else {}

    @property
    def figures(self) -> dict[str, Any]:
        """The numbers of the reason by name; empty where it has none."""
        return {
            key: value
            for key, value in asdict(self).items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }


@dataclass(frozen=True)
class PairReason(Reason):
    """Base class of reasons that hold for two kernels, and speak of one pair of ops in them.

    Where both are the same op, they hold for its kernel by itself. ``{who}`` in the template stands
    for the two, or the one.
    """

    first: str
    second: str

    @property
    def is_of_one(self) -> bool:
        """Whether it holds for one kernel by itself, whatever the other is."""
        return self.first == self.second

    @property
    def message(self) -> str:
        """One sentence with the names and figures in it."""
        who = f"{self.first} by itself" if self.is_of_one else f"{self.first} with {self.second}"
        return self.template.format(who=who, **asdict(self))


@dataclass(frozen=True)
class Decision:
    """The verdict on one producer and one consumer.

    Parameters
    ----------
    producer, consumer : str
        Names of ops of the graph.
    reason : Reason
        Why.
    tried : tuple of str
        The ops that one kernel would have held where the pair was refused; empty where it was
        refused without looking at more than the two.
    """

    producer: str
    consumer: str
    reason: Reason
    tried: tuple[str, ...] = ()

    @property
    def fused(self) -> bool:
        """Whether both ended up in one group."""
        return self.reason.fused


@dataclass(frozen=True)
class SiblingDecision:
    """The verdict on two ops that read the same tensor, neither of which reads the other.

    Parameters
    ----------
    first, second : str
        Names of ops of the graph, in its order.
    tensor : str
        What both read: an op, or a tensor from outside.
    reason : Reason
        Why.
    tried : tuple of str
        As for :class:`Decision`.
    """

    first: str
    second: str
    tensor: str
    reason: Reason
    tried: tuple[str, ...] = ()

    @property
    def fused(self) -> bool:
        """Whether both ended up in one group."""
        return self.reason.fused
