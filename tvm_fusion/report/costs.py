"""Gives each op and each group the calls of a finished module that belong to it."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..analysis.traffic import CallTraffic
from .data import Moved


@dataclass(frozen=True)
class Wanted:
    """What is looked for: a call in a Relax function of a PrimFunc, bound to one of some names."""

    owner: str
    function: str
    variables: tuple[str, ...]


def assign_calls(calls: Iterable[CallTraffic], wanted: Sequence[Wanted]) -> list[Moved | None]:
    """The cost of what is wanted; None for what the module does not call.

    Every call is given away once: first to whom its variable names, then in order, since passes
    may rename variables.

    Parameters
    ----------
    calls : iterable of CallTraffic
        The calls of a module.
    wanted : sequence of Wanted
        Who asks for one.
    """
    left: dict[tuple[str, str], deque[CallTraffic]] = defaultdict(deque)
    for call in calls:
        left[call.owner, call.function].append(call)
    named: dict[tuple[str, str, str], deque[CallTraffic]] = defaultdict(deque)
    for (owner, function), those in left.items():
        for call in those:
            named[owner, function, call.variable].append(call)
    found: list[CallTraffic | None] = [None] * len(wanted)
    taken: set[int] = set()
    for i, one in enumerate(wanted):
        for variable in one.variables:
            if named[one.owner, one.function, variable]:
                call = named[one.owner, one.function, variable].popleft()
                found[i] = call
                taken.add(id(call))
                break
    for i, one in enumerate(wanted):
        rest = left[one.owner, one.function]
        while rest and id(rest[0]) in taken:
            rest.popleft()
        if found[i] is None and rest:
            found[i] = rest.popleft()
    return [None if call is None else moved(call) for call in found]


def moved(call: CallTraffic) -> Moved:
    """What a call costs."""
    traffic = call.traffic
    return Moved(traffic.kernels, traffic.bytes_read, traffic.bytes_written)


def sum_of(costs: Iterable[Moved]) -> Moved:
    """The sum of costs."""
    kernels = read = written = 0
    for cost in costs:
        kernels += cost.kernels
        read += cost.bytes_read
        written += cost.bytes_written
    return Moved(kernels, read, written)
