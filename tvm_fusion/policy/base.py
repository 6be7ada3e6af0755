"""What a fusion policy is, what it returns, and where policies are found by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

from ..analysis import DataflowGraph
from ..device import Device
from ..errors import PolicyError
from ..limits import Limits
from .reasons import Decision, Fused, Reason


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
    """

    groups: tuple[Group, ...]
    decisions: tuple[Decision, ...]


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


def decide_edges(
    graph: DataflowGraph,
    groups: Iterable[Group],
    refusal: Callable[[int, int, frozenset[int]], Reason],
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
        together = group is not None and group is member.get(consumer)
        reason = (
            Fused(len(group.ops)) if together and group else refusal(producer, consumer, grouped)
        )
        decided.append(Decision(graph.ops[producer].name, graph.ops[consumer].name, reason))
    return tuple(decided)


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
