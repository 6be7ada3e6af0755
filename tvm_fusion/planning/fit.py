"""Fits what a group keeps on the chip: registers first, then shared memory, else not kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .elements import Elements
from .kernel_plan import COLUMN, SHARED, CannotPlan
from .launch import Launch
from .layout import Layout
from .reuse import Reuse, ReuseDecision
from .storage import BASE_REGISTERS, SERIAL_REGISTERS, Storage, place

#: From this cost of one evaluation on, evaluating again for every element is refused.
_EXPENSIVE = 16.0
_MOST_RECOMPUTED = 4.0


@dataclass(frozen=True)
class Budget:
    """What one thread block may have.

    Parameters
    ----------
    shared_bytes : int
        Shared memory.
    threads : int
        Threads.
    registers : int
        Registers.
    row_registers_wanted : int
        Registers of a thread that hold elements of rows where it does not have a row for itself.
    """

    shared_bytes: int
    threads: int
    registers: int
    row_registers_wanted: int

    def row_registers(self, launch: Launch) -> int:
        """Registers of a thread that may hold elements of rows."""
        threads = launch.threads * launch.rows
        most = min(255, self.registers // (-(-threads // 32) * 32))
        wanted = self.row_registers_wanted if launch.threads > 1 else SERIAL_REGISTERS
        return max(8, min(wanted, most - BASE_REGISTERS))


@dataclass(frozen=True)
class Fit:
    """Launch shape, what is kept, and where.

    Parameters
    ----------
    mode : str
        Which threads do what.
    decision : ReuseDecision
        The group under its layout.
    launch : Launch
        The threads.
    reuse : Reuse
        What is kept.
    storage : Storage
        Where it lives.
    notes : tuple of str
        What could not be kept, and why.
    """

    mode: str
    decision: ReuseDecision
    launch: Launch
    reuse: Reuse
    storage: Storage
    notes: tuple[str, ...]


def fit(mode: str, layout: Layout, launches: Sequence[Launch], budget: Budget) -> Fit:
    """The first launch shape under which all that is kept fits on the chip.

    Where none does, results are evaluated again instead, the largest first; inputs are then read
    again, which the notes say.

    Parameters
    ----------
    mode : str
        Which threads do what.
    layout : Layout
        Rows and local classes.
    launches : sequence of Launch
        Launch shapes, the preferred ones first.
    budget : Budget
        What a thread block may have.

    Raises
    ------
    CannotPlan
        What must be kept does not fit, or something expensive would be evaluated again and again.
    """
    notes: list[str] = []
    recompute = _unbounded(mode, layout, launches[0])
    if recompute:
        notes.append("the row is of any length: what is read again is evaluated again")
    while True:
        attempt = _Attempt(mode, layout, recompute, budget)
        found = attempt.first_that_fits(launches)
        if found is not None:
            attempt.check_recompute()
            return Fit(mode, attempt.decision, found[0], attempt.reuse, found[1], tuple(notes))
        nest, note = attempt.let_go(launches[-1])
        recompute |= {nest}
        notes.append(note)


def _unbounded(mode: str, layout: Layout, launch: Launch) -> frozenset[int]:
    """Nests whose result no array can hold, since its size is not known."""
    elements = Elements(layout, launch, mode == COLUMN)
    found = frozenset(n for n, local in enumerate(layout.local) if not elements.is_bounded(local))
    if any(layout.digits.group.nests[n].reduces for n in found):
        raise CannotPlan("symbolic_row", "it reduces to a row of symbolic length")
    return found


class _Attempt:
    """One choice of what must not be kept."""

    def __init__(
        self, mode: str, layout: Layout, recompute: frozenset[int], budget: Budget
    ) -> None:
        self.mode = mode
        self.budget = budget
        self.decision = ReuseDecision(layout, recompute)
        self.reuse = self.decision.decide()
        self.group = self.decision.group
        outputs = set(self.group.outputs)
        self.direct = frozenset(
            n
            for n in recompute
            if any(store.tensor in outputs for store in self.group.nests[n].stores)
        )

    def place(self, launch: Launch) -> Storage:
        return place(
            self.decision,
            self.reuse,
            launch,
            self.mode == COLUMN,
            self.budget.row_registers(launch),
            self.budget.shared_bytes,
            self.direct,
        )

    def first_that_fits(self, launches: Sequence[Launch]) -> tuple[Launch, Storage] | None:
        """The first launch shape that needs registers only, else the first that fits."""
        best: tuple[Launch, Storage] | None = None
        for launch in reversed(launches) if self.decision.recompute else launches:
            storage = self.place(launch)
            in_shared = SHARED in storage.placement
            if storage.shared_bytes > self.budget.shared_bytes or (launch.chunk and in_shared):
                continue
            if storage.row_registers > self.budget.row_registers(launch):
                continue
            if not in_shared:
                return launch, storage
            best = best or (launch, storage)
        return best

    def let_go(self, launch: Launch) -> tuple[int, str]:
        """The nest that is not kept next, and what to say of it."""
        storage, allowed = self.place(launch), self.budget.shared_bytes
        movable = [
            n
            for n, where in enumerate(storage.placement)
            if where == SHARED
            and not self.group.nests[n].reduces
            and n not in self.decision.recompute
        ]
        if not movable:
            raise CannotPlan(
                "shared_memory",
                f"what lies between needs {storage.shared_bytes} bytes of shared memory, "
                f"{allowed} are allowed",
                bytes_needed=storage.shared_bytes,
                bytes_allowed=allowed,
            )
        largest = max(movable, key=lambda n: self.decision.points[n])
        return largest, (
            f"{self.group.nests[largest].name} is evaluated again where it is read: "
            f"{storage.shared_bytes} bytes of shared memory would be needed, {allowed} are allowed"
        )

    def check_recompute(self) -> None:
        """Refuse to evaluate what is expensive for every element that it is broadcast to."""
        decision, layout = self.decision, self.decision.layout
        for n, nest in enumerate(self.group.nests):
            if n in decision.recompute or n in decision.roots:
                continue
            if self.reuse.costs[n] < _EXPENSIVE:
                continue
            again = self.reuse.evaluations[n] / max(1, decision.points[n])
            again *= layout.lacks_rows(n).estimate()
            if again > _MOST_RECOMPUTED:
                raise CannotPlan(
                    "recompute",
                    f"{nest.name} would be evaluated {again:.0f} times for each of its elements",
                    factor=again,
                )
