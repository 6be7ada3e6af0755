"""What a fusion policy is, what it returns, and where policies are found by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from ..analysis import DataflowGraph
from ..device import Device
from ..errors import PolicyError
from ..limits import Limits
from .reasons import Decision, Duplicated, Fused, Reason, SiblingDecision, SiblingsApart


@dataclass(frozen=True)
class Group:
    """Ops that will be one kernel.

    Parameters
    ----------
    ops : tuple of int
        Indices into the graph, in topological order.
    shared_bytes : int
        Shared memory that the policy reckons with, in bytes per thread block.
    """

    ops: tuple[int, ...]
    shared_bytes: int = 0


@dataclass(frozen=True)
class Partition:
    """What a policy decided on one graph.

    Parameters
    ----------
    groups : tuple of Group
        Disjoint and convex, in the order of their first op. Single ops are no group, unless
        an op has outputs that nobody reads.
    decisions : tuple of Decision
        One for each distinct (producer, consumer).
    siblings : tuple of SiblingDecision
        One for each two readers of one tensor that were considered; see :func:`decide_siblings`.
    """

    groups: tuple[Group, ...]
    decisions: tuple[Decision, ...]
    siblings: tuple[SiblingDecision, ...] = ()


class Refusal(NamedTuple):
    """Why two ops are not in one group, and the ops that one kernel would have held."""

    reason: Reason
    ops: tuple[int, ...] = ()


#: Why some ops, in topological order, are not one kernel; None where they are.
GroupCheck = Callable[[tuple[int, ...]], "Reason | None"]


@runtime_checkable
class Policy(Protocol):
    """Decides which ops of a graph become one kernel."""

    name: str

    def partition(
        self,
        graph: DataflowGraph,
        limits: Limits,
        device: Device,
        check: GroupCheck | None = None,
    ) -> Partition:
        """Form groups.

        Parameters
        ----------
        graph : DataflowGraph
            The ops and what flows between them.
        limits : Limits
            Budgets of a group.
        device : Device
            Figures of the GPU.
        check : callable, optional
            Tells for a set of ops why they do not come out as one kernel, or None where they do.
            What a policy returns is checked in any case, and cut where it fails; a policy asks
            where it would decide otherwise if it knew.
        """
        ...


def parting(refusals: Sequence[Refusal], first: int, second: int) -> Refusal | None:
    """The refusal by which two ops of one group came apart: the last of a group with both."""
    return next((r for r in reversed(refusals) if first in r.ops and second in r.ops), None)


def decide_edges(
    graph: DataflowGraph,
    groups: Iterable[Group],
    refusal: Callable[[int, int, frozenset[int]], Refusal],
) -> tuple[Decision, ...]:
    """One decision for each distinct producer and consumer.

    Parameters
    ----------
    graph : DataflowGraph
        The ops.
    groups : iterable of Group
        The groups that were formed.
    refusal : callable
        (producer, consumer, all ops that are in groups) -> why the two are not in one group.
    """
    member = {op: group for group in groups for op in group.ops}
    grouped = frozenset(member)
    decided = []
    for producer, consumer in graph.edges():
        group = member.get(producer)
        if group is not None and group is member.get(consumer):
            found = Refusal(together(graph, producer, len(group.ops)))
        else:
            found = refusal(producer, consumer, grouped)
        names = graph.ops[producer].name, graph.ops[consumer].name
        decided.append(Decision(*names, found.reason, graph.names(found.ops)))
    return tuple(decided)


def together(graph: DataflowGraph, producer: int, size: int) -> Reason:
    """The reason of a pair that is in one group of ``size`` ops."""
    op = graph.ops[producer]
    return Duplicated(op.name, op.repeats, size) if op.repeats else Fused(size)


#: What ops read: ``("out", name of an op)`` or ``("in", name of a tensor from outside)``.
Source = tuple[str, str]

#: Of many readers of one tensor each is paired with this many of those that follow it.
NEAREST = 4


def decide_siblings(
    graph: DataflowGraph,
    groups: Iterable[Group],
    refusal: Callable[[int, int, Source], Refusal | None],
) -> tuple[SiblingDecision, ...]:
    """One decision for each two ops that read the same tensor, directly or through views.

    Pairs of which one reads the other have a decision already. Of many readers each is paired with
    the nearest only.

    Parameters
    ----------
    graph : DataflowGraph
        The ops.
    groups : iterable of Group
        The groups that were formed.
    refusal : callable
        (first, second, what both read) -> why the two are not in one group; None where nobody
        considered the pair.
    """
    member = {op: group for group in groups for op in group.ops}
    decided: dict[tuple[int, int], SiblingDecision] = {}
    for source, readers in _readers(graph, member).items():
        for first, second in _near_pairs(readers):
            pair = first, second
            if pair in decided or second in graph.consumers(first):
                continue
            group = member.get(first)
            found: Refusal | None = None
            if group is not None and group is member.get(second):
                found = Refusal(Fused(len(group.ops)))
            else:
                found = refusal(first, second, source)
            if found is not None:
                names = graph.ops[first].name, graph.ops[second].name
                decided[pair] = SiblingDecision(
                    *names, source[1], found.reason, graph.names(found.ops)
                )
    return tuple(decided.values())


def siblings_apart(
    graph: DataflowGraph, op_refusal: Callable[[int], Reason | None]
) -> Callable[[int, int, Source], Refusal]:
    """What :func:`decide_siblings` asks, for a policy that never joins readers of one tensor.

    Parameters
    ----------
    graph : DataflowGraph
        The ops.
    op_refusal : callable
        Why an op is in no group, whatever the other is; None where nothing forbids it.
    """

    def refusal(first: int, second: int, source: Source) -> Refusal:
        reason = op_refusal(first) or op_refusal(second)
        a, b = graph.names((first, second))
        return Refusal(reason or SiblingsApart(a, b, source[1]))

    return refusal


def _readers(graph: DataflowGraph, member: Mapping[int, Group]) -> dict[Source, list[int]]:
    """Who reads each op and each tensor from outside, views outside of groups looked through."""
    found: dict[Source, dict[int, None]] = {}
    behind: dict[Source, Source] = {}  # a view -> what it is a view of
    for op in graph.topological_order:
        node = graph.ops[op]
        read = [(str(t[0]), str(t[1])) for t in node.reads if isinstance(t, tuple)]
        sources = dict.fromkeys(behind.get(source, source) for source in read)
        if node.is_view and not node.blocked and op not in member and len(sources) == 1:
            behind["out", node.name] = next(iter(sources))
            continue
        for source in sources:
            found.setdefault(source, {})[op] = None
    return {source: list(readers) for source, readers in found.items() if len(readers) > 1}


def _near_pairs(readers: list[int]) -> Iterator[tuple[int, int]]:
    for place, first in enumerate(readers):
        for second in readers[place + 1 : place + 1 + NEAREST]:
            yield first, second


#: The policy that is used where none is named.
DEFAULT_POLICY = "stitch"

_POLICIES: dict[str, Callable[..., Policy]] = {}

_Factory = TypeVar("_Factory", bound=Callable[..., Any])


def register_policy(name: str) -> Callable[[_Factory], _Factory]:
    """Register a policy class (or any callable that makes a policy) under ``name``.

    Raises
    ------
    PolicyError
        The name is taken.
    """
    if name in _POLICIES:
        raise PolicyError(f"a policy named {name!r} is registered already: choose another name")

    def register(factory: _Factory) -> _Factory:
        _POLICIES[name] = factory
        return factory

    return register


def policies() -> list[str]:
    """Names of the registered policies."""
    return sorted(_POLICIES)


def get_policy(policy: str | Policy) -> Policy:
    """The policy of that name, or the policy itself.

    Raises
    ------
    PolicyError
        No such name, or an object that is no policy.
    """
    if isinstance(policy, str):
        if policy not in _POLICIES:
            raise PolicyError(f"unknown policy {policy!r}: choose one of {', '.join(policies())}")
        return _POLICIES[policy]()
    if isinstance(policy, type) or not isinstance(policy, Policy):
        raise PolicyError(
            f"{policy!r} is no policy: give one of {', '.join(policies())}, or an object with "
            f"a name and a partition method"
        )
    return policy
