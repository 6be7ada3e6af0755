"""Plans the kernel of a group: parallel axes, what is kept and where, threads, and the figures."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from math import gcd

from ..analysis.extents import ONE, Extent, product
from ..analysis.nests import Nests
from .digits import Digits
from .figures import make_plan
from .fit import Budget, Fit, fit
from .kernel_plan import COLUMN, FLAT, ROW, CannotPlan, KernelPlan
from .launch import (
    VECTOR_BYTES,
    WARP_THREADS,
    Launch,
    column_launches,
    flat_launch,
    row_launches,
    symbolic_row_launches,
)
from .layout import Layout, split_class
from .stage import inputs_read_again, stage_inputs
from .tuning import DEFAULT_TUNING, Tuning

#: Fewer thread blocks than this leave most of a GPU idle; shorter rows do not matter.
_FEW_ROWS = 256
_LONG_ROW = 4096

#: A row that is walked by threads has at most this many points in a pointwise group.
_FLAT_POINTS = 4096


def plan_kernel(
    group: Nests,
    shared_limit: int,
    max_threads: int = 1024,
    registers: int = 65536,
    tuning: Tuning = DEFAULT_TUNING,
) -> KernelPlan:
    """Plan one kernel for a group.

    Parameters
    ----------
    group : Nests
        The group's nests.
    shared_limit : int
        Shared memory that a thread block may use, in bytes.
    max_threads : int
        Threads that a block may have.
    registers : int
        Registers of a multiprocessor; a block cannot have more.
    tuning : Tuning, optional
        Sizes to aim at.

    Returns
    -------
    KernelPlan

    Raises
    ------
    CannotPlan
        No single kernel can hold the group; ``code`` says which rule is in the way.
    """
    again = inputs_read_again(group)
    threads = min(max_threads, tuning.max_threads)
    budget = Budget(shared_limit, threads, registers, tuning.row_registers)
    last: CannotPlan | None = None
    for staged in dict.fromkeys((again, ())):
        try:
            return _Planner(group, staged, budget, tuning).plan()
        except CannotPlan as error:
            last = error
    assert last is not None
    raise last


class _Planner:
    def __init__(
        self,
        group: Nests,
        staged: Sequence[Hashable],
        budget: Budget,
        tuning: Tuning,
    ) -> None:
        self.staged = tuple(group.inputs.index(tensor) for tensor in staged)
        self.group = stage_inputs(group, staged)
        self.digits = Digits(self.group)
        self.budget = budget
        self.tuning = tuning
        self.roots = self.group.roots()

    def plan(self) -> KernelPlan:
        parallel = self._parallel()
        local = self._local_order(parallel)
        if not local:
            return self._plan_flat(parallel)
        if not parallel and self.staged:
            raise CannotPlan("no_common_axis", self._spoilt())
        contiguous = self._contiguous_rows(parallel)
        symbolic = [c for c in local if self.digits.extents[c].symbols]
        if symbolic and (contiguous is not None or not parallel):
            raise CannotPlan(
                "symbolic_row", f"a row has the symbolic extent {self.digits.extents[symbolic[0]]}"
            )
        if symbolic:
            return self._plan_symbolic_rows(parallel, local)
        if contiguous is None:
            return self._plan_rows(parallel, local)
        ordered = [c for c in parallel if c != contiguous] + [contiguous]
        return self._plan_columns(ordered, local)

    # -- parallel axes and the order of the others ------------------------------------------

    def _parallel(self) -> list[int]:
        """Classes that every output and every reduction has, and nobody walks otherwise."""
        if not self.group.outputs:
            raise CannotPlan("no_output", "nothing that it makes is read")
        spoilt = self.digits.opaque | self.digits.reduced
        widest = max(
            self.group.outputs, key=lambda t: product(self.group.tensors[t].shape).estimate()
        )
        candidates = [c for c in self.digits.tensor_classes(widest) if c not in spoilt]
        for root in self.roots:
            own = set(self.digits.nest_classes(root))
            candidates = [c for c in candidates if c in own]
        return candidates

    def _spoilt(self) -> str:
        names = sorted(set(self.digits.spoilt_by.values()))
        why = f": {', '.join(names)} walks them otherwise" if names else ""
        return f"its results have no axis in common that all of it walks alike{why}"

    def _local_order(self, parallel: Sequence[int]) -> list[int]:
        """All other classes that roots walk, as the largest tensors have them."""
        rest = set(parallel)
        tensors = sorted(
            dict.fromkeys((*self.group.outputs, *self.group.inputs)),
            key=lambda t: -product(self.group.tensors[t].shape).estimate(),
        )
        walked = {c for n in range(len(self.group.nests)) for c in self.digits.nest_classes(n)}
        needed = {c for root in self.roots for c in self.digits.nest_classes(root)} - rest
        if not needed:
            return []
        order: list[int] = []
        for tensor in tensors:
            classes = [c for c in self.digits.tensor_classes(tensor) if c in walked]
            _insert_in_order(order, [c for c in classes if c not in rest])
        for n in range(len(self.group.nests)):
            _insert_in_order(order, [c for c in self.digits.nest_classes(n) if c not in rest])
        return order

    def _contiguous_rows(self, parallel: Sequence[int]) -> int | None:
        """The parallel class that lies innermost in most of the bytes, or None."""
        rows, votes = set(parallel), {True: 0, False: 0}
        by_class: dict[int, int] = {}
        for tensor in (*self.group.inputs, *self.group.outputs):
            classes = self.digits.tensor_classes(tensor)
            if not rows & set(classes):
                continue
            size = product(self.group.tensors[tensor].shape).estimate()
            size *= self.group.tensors[tensor].element_bytes
            innermost = classes[-1]
            votes[innermost in rows] += size
            if innermost in rows:
                by_class[innermost] = by_class.get(innermost, 0) + size
        if votes[True] <= votes[False]:
            return None
        return max(by_class, key=by_class.__getitem__)

    # -- the three ways ---------------------------------------------------------------------

    def _vector(self, innermost: Sequence[Extent]) -> int:
        """Elements of a vector: 16 bytes of the smallest type, as far as the extents divide."""
        sizes = [
            self.group.tensors[t].element_bytes
            for t in (*self.group.inputs, *self.group.outputs)
            if self.digits.tensor_classes(t) and self.group.tensors[t].dtype != "bool"
        ]
        vector = min(self.tuning.max_vector, VECTOR_BYTES // max(2, min(sizes, default=4)))
        while vector > 1 and any(extent.number % vector for extent in innermost):
            vector //= 2
        return max(1, vector)

    def _plan_flat(self, parallel: list[int]) -> KernelPlan:
        local = self._flat_classes(parallel)
        rest = [c for c in parallel if c not in local]
        layout = Layout(self.digits, rest, local)
        vector = self._vector([self.digits.extents[local[-1]]] if local else [])
        points = layout.size(local)
        launch = flat_launch(points, layout.rows, vector)
        fitted = self._fit(FLAT, layout, [launch])
        return self._finish(fitted)

    def _flat_classes(self, parallel: Sequence[int]) -> list[int]:
        """Trailing classes that a block walks.

        A tensor that has some of them but not the next would be read again by the same block; it
        ends the walk.
        """
        involved = [set(self.digits.tensor_classes(t)) for t in self.group.inputs]
        involved += [
            set(self.digits.nest_classes(n))
            for n, nest in enumerate(self.group.nests)
            if nest.cost >= 8
        ]
        chosen: list[int] = []
        size = ONE
        for cls in reversed(parallel):
            extent = self.digits.extents[cls]
            if chosen and any(
                (cls in own) != bool(own & set(chosen)) and own & ({cls} | set(chosen))
                for own in involved
            ):
                break
            chosen.insert(0, cls)
            size = size * extent
            if size.symbols or size.number >= _FLAT_POINTS:
                break
        return chosen

    def _check_rows(self, layout: Layout, rows_of_block: int = 1) -> None:
        """Refuse few long rows where nothing needs a row as a whole.

        Only a reduction of all of it makes a thread block hold a row; what merely looks around in
        it, like a window or a reversed read, is better divided among many blocks by other rules.
        """
        if any(self.group.nests[n].reduces and not layout.local[n] for n in self.roots):
            return
        rows = layout.rows.static
        longest = max((layout.points(n).estimate() for n in self.roots), default=1)
        points = longest * rows_of_block
        if rows is not None and rows < _FEW_ROWS * rows_of_block and points > _LONG_ROW:
            blocks = -(-rows // rows_of_block)
            raise CannotPlan(
                "few_rows" if layout.parallel else "no_common_axis",
                f"{blocks} thread blocks would work on {points} points each: {self._spoilt()}",
                thread_blocks=blocks,
                points=points,
            )

    def _plan_rows(self, parallel: list[int], local: list[int]) -> KernelPlan:
        layout = Layout(self.digits, parallel, local)
        self._check_rows(layout)
        walked = [c for n in self.roots for c in (layout.local[n], layout.reduced[n]) if c]
        longest = max((layout.size(c).number for c in walked), default=1)
        long_ones = [c for c in walked if layout.size(c).number == longest]
        innermost = [self.digits.extents[c[-1]] for c in long_ones]
        vector = self._vector(innermost) if self._rows_are_contiguous(layout) else 1
        launches = row_launches(
            longest, layout.rows, vector, self.budget.threads, self.tuning.elements
        )
        launches = [self._with_shared_inputs(layout, launch) for launch in launches]
        fitted = self._fit(ROW, layout, launches)
        return self._finish(fitted)

    def _with_shared_inputs(self, layout: Layout, launch: Launch) -> Launch:
        """The launch with so few rows in a block that all of them read an input at one place.

        That holds where rows next to each other read it at one place, like the heads of a batch
        their mask; the block then loads it once. A block keeps two warps: of smaller ones a
        multiprocessor does not hold enough to be full.
        """
        rows = launch.rows
        for tensor in self.group.inputs:
            own = set(self.digits.tensor_classes(tensor))
            last = max((i for i, cls in enumerate(layout.parallel) if cls in own), default=None)
            if last is None or last + 1 == len(layout.parallel):
                continue
            together = gcd(layout.size(layout.parallel[last + 1 :]).number, rows)
            if together * launch.threads >= 2 * WARP_THREADS:
                rows = together
        return replace(launch, rows=rows)

    def _plan_symbolic_rows(self, parallel: list[int], local: list[int]) -> KernelPlan:
        """Plans for short and middle rows that keep results, and one for all others."""
        layout = Layout(self.digits, parallel, local)
        sizes = {layout.size(c) for n in self.roots for c in (layout.local[n], layout.reduced[n])}
        longest = max(sizes, key=lambda e: e.estimate())
        if not all(e.symbols == longest.symbols and e.at_most(longest) for e in sizes if e.symbols):
            raise CannotPlan("symbolic_row", "its rows have several symbolic lengths")
        if any(layout.local[n] and layout.size(layout.reduced[n]).symbols for n in self.roots):
            raise CannotPlan(
                "symbolic_row",
                "it reduces along a symbolic axis for each of several elements of a row",
            )
        innermost = [
            self.digits.extents[c[-1]]
            for n in self.roots
            for c in (layout.local[n], layout.reduced[n])
            if c and layout.size(c).symbols
        ]
        vector = self._vector(innermost)
        plan: KernelPlan | None = None
        for launch in reversed(symbolic_row_launches(vector, self.budget.threads)):
            plan = replace(self._finish(self._fit(ROW, layout, [launch])), longer=plan)
        assert plan is not None
        return plan

    def _rows_are_contiguous(self, layout: Layout) -> bool:
        """Whether some tensor has a local class innermost."""
        return any(
            classes and classes[-1] in layout.order
            for classes in map(
                self.digits.tensor_classes, (*self.group.inputs, *self.group.outputs)
            )
        )

    def _plan_columns(self, parallel: list[int], local: list[int]) -> KernelPlan:
        contiguous = parallel[-1]
        extent = self.digits.extents[contiguous]
        rows = product(self.digits.extents[c] for c in parallel)
        vector = self._vector([extent])
        layout = Layout(self.digits, parallel, local)
        self._check_rows(layout, 32)
        longest = max(
            (
                max(layout.size(layout.local[n]).number, layout.size(layout.reduced[n]).number)
                for n in self.roots
            ),
            default=1,
        )
        while vector > 1 and (rows.estimate() // vector < 8192 or longest * vector > 64):
            vector //= 2
        lane = None
        if vector > 1:
            try:
                lane = split_class(self.digits, contiguous, vector)
            except ValueError:
                vector = 1
        layout = Layout(self.digits, parallel, local, lane)
        launches = column_launches(
            longest, layout.rows, self.digits.extents[contiguous], vector, self.budget.threads
        )
        fitted = self._fit(COLUMN, layout, launches)
        return self._finish(fitted)

    def _fit(self, mode: str, layout: Layout, launches: Sequence[Launch]) -> Fit:
        return fit(mode, layout, launches, self.budget)

    def _finish(self, fitted: Fit) -> KernelPlan:
        return make_plan(self.staged, fitted)


def _insert_in_order(order: list[int], classes: Sequence[int]) -> None:
    """Add classes to an order, each behind the one that it follows in ``classes``."""
    place = -1
    for cls in classes:
        if cls in order:
            place = order.index(cls)
        else:
            place += 1
            order.insert(place, cls)
