"""Which results are kept on the chip, and which are evaluated where they are read.

The measure is the recompute factor, points evaluated over points there are, times the cost of one
evaluation; what would read global memory a second time is kept whatever it costs.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from ..analysis.nests import TensorAccess
from .layout import Layout

#: Additions for each point from which keeping a result is cheaper than evaluating it again.
_WORTH_KEEPING = 2.0

#: What is read from global memory up to this often is taken to be read once.
_READ_ONCE = 1.05

#: Different places that a result is read at in one row before it is taken to be read everywhere.
_MOST_PLACES = 16


@dataclass(frozen=True)
class Reuse:
    """What is kept, and what evaluating the rest again costs.

    Parameters
    ----------
    kept : frozenset of int
        Nests whose result is stored on the chip or is an output.
    evaluations : tuple of float
        For each nest the points evaluated in one row.
    costs : tuple of float
        For each nest the cost of one point, with all that is evaluated for it.
    """

    kept: frozenset[int]
    evaluations: tuple[float, ...]
    costs: tuple[float, ...]


class ReuseDecision:
    """Decides for a group under one layout.

    Parameters
    ----------
    layout : Layout
        How the kernel walks the group.
    recompute : frozenset of int
        Nests that must not be kept, since there is no room for them.
    """

    def __init__(self, layout: Layout, recompute: frozenset[int] = frozenset()) -> None:
        self.layout = layout
        self.group = layout.digits.group
        self.recompute = recompute
        self.maker = {
            store.tensor: n for n, nest in enumerate(self.group.nests) for store in nest.stores
        }
        self.roots = frozenset(self.group.roots())
        self.points = [layout.points(n).estimate() for n in range(len(self.group.nests))]
        self.scalar = [
            not layout.local[n] and not layout.reduced[n] and self.points[n] == 1
            for n in range(len(self.group.nests))
        ]
        self.readers: list[list[tuple[int, int, bool]]] = [[] for _ in self.group.nests]
        for n, nest in enumerate(self.group.nests):
            for number, access in enumerate(nest.loads):
                maker = self.maker.get(access.tensor)
                if maker is not None:
                    aligned = layout.digits.is_aligned(n, access)
                    self.readers[maker].append((n, number, aligned))

    def decide(self) -> Reuse:
        """Decide backwards from the outputs, then let go of what turned out cheap."""
        count = len(self.group.nests)
        full_cost, touches = self._upstream()
        kept = set(self.roots) | {n for n in range(count) if self.scalar[n]}
        evaluations = [0.0] * count
        places: list[dict[Hashable, float]] = [{} for _ in range(count)]
        for n in reversed(range(count)):
            places[n] = self._places(n, kept, places)
            evaluations[n] = sum(places[n].values())
            if n not in kept and self._worth(n, places[n], full_cost[n], touches[n]):
                kept.add(n)
        costs = [0.0] * count
        touching = [False] * count
        for n in range(count):  # upstream is settled now: costs are those that remain
            costs[n], touching[n] = self._own_cost(n, kept, costs, touching)
            prunable = n in kept and n not in self.roots and not self.scalar[n]
            if prunable and not self._worth(n, places[n], costs[n], touching[n]):
                kept.discard(n)
        for n in reversed(range(count)):
            places[n] = self._places(n, kept, places)
            evaluations[n] = float(self.points[n]) if n in kept else sum(places[n].values())
        return Reuse(frozenset(kept), tuple(evaluations), tuple(costs))

    def _upstream(self) -> tuple[list[float], list[bool]]:
        """For each nest the cost of one point, and whether it loads an input, if all is inlined."""
        costs: list[float] = []
        touches: list[bool] = []
        settled = set(self.roots) | {n for n, scalar in enumerate(self.scalar) if scalar}
        for n in range(len(self.group.nests)):
            cost, touching = self._own_cost(n, settled, costs, touches)
            costs.append(cost)
            touches.append(touching)
        return costs, touches

    def _own_cost(
        self, n: int, kept: set[int], costs: list[float], touches: list[bool]
    ) -> tuple[float, bool]:
        nest = self.group.nests[n]
        cost, touching = nest.cost, False
        for tensor in dict.fromkeys(access.tensor for access in nest.loads):
            maker = self.maker.get(tensor)
            if maker is None:
                touching = touching or bool(self.layout.tensor_local(tensor))
            elif maker not in kept:
                cost += costs[maker]
                touching = touching or touches[maker]
        return min(cost, 1e9), touching

    def _places(
        self, n: int, kept: set[int], places: list[dict[Hashable, float]]
    ) -> dict[Hashable, float]:
        """Where the result of a nest is read: in which nest, at which index, at how many points."""
        found: dict[Hashable, float] = {}
        for reader, number, aligned in self.readers[n]:
            guarded = self.group.nests[reader].loads[number].guarded
            inside: dict[Hashable, float]
            if reader in kept:
                inside = {reader: float(self.points[reader])}
            else:
                inside = places[reader]
            for place, points in inside.items():
                key = place if aligned else (place, reader, number)
                found[key] = min(points, float(self.points[n])) if guarded else points
            if len(found) > _MOST_PLACES:
                total = sum(found.values())
                return {"everywhere": total}
        return found

    def _worth(self, n: int, places: dict[Hashable, float], cost: float, touches: bool) -> bool:
        """Whether keeping a result is worth its place."""
        if n in self.recompute or not self._has_place(n):
            return False
        evaluations = sum(places.values())
        once = max(float(self.points[n]), *places.values()) if places else 0.0
        if touches and evaluations > _READ_ONCE * once:
            return True
        return (evaluations / max(1, self.points[n]) - 1.0) * cost > _WORTH_KEEPING

    def _has_place(self, n: int) -> bool:
        """Whether the layout walks all classes of a nest, so that its result can be stored."""
        walked = {*self.layout.parallel, *self.layout.order, self.layout.lane}
        return all(c in walked for c in self.layout.digits.nest_classes(n))


def accesses_of_kept(
    decision: ReuseDecision, kept: frozenset[int], direct: frozenset[int] = frozenset()
) -> Iterator[tuple[int, int, TensorAccess, int | None, bool]]:
    """What each kept nest reads, itself and through the nests that are inlined into it.

    Parameters
    ----------
    decision : ReuseDecision
        The group.
    kept : frozenset of int
        Nests that are kept.
    direct : frozenset of int
        Those of them whose result is not read back: who needs it evaluates it again.

    Yields
    ------
    root : int
        The kept nest.
    nest : int
        Itself, or the inlined one that reads.
    access : TensorAccess
        The load.
    maker : int or None
        The nest that makes what is loaded; None for an input.
    own : bool
        Whether it is loaded at the root's own point.
    """
    digits = decision.layout.digits
    for root in sorted(kept):
        stack = [(root, True)]
        seen: set[tuple[int, bool]] = set()
        while stack:
            nest, own = stack.pop()
            for access in decision.group.nests[nest].loads:
                maker = decision.maker.get(access.tensor)
                here = own and digits.is_aligned(nest, access)
                yield root, nest, access, maker, here
                if maker is None or maker == root or (maker in kept and maker not in direct):
                    continue
                if (maker, here) not in seen:
                    seen.add((maker, here))
                    stack.append((maker, here))
