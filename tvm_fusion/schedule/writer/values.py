"""The values of nests at a point: expressions over loads, registers, shared memory and names."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from ...analysis.blocks import element_bytes, loads_of, vars_of
from ...analysis.nests import TensorAccess
from ...planning.kernel_plan import GLOBAL, INLINE, REGISTER, SCALAR
from ...planning.launch import VECTOR_BYTES
from .point import ALWAYS, Guard, Point
from .rows import Rows
from .source import Source, all_of, harmless, local_buffer, loop, strides, value_var

#: Marks what is known at the point itself.
_OWN = "own"


class Values:
    """Evaluates nests.

    Parameters
    ----------
    source : Source
        The group.
    rows : Rows
        The thread's place.
    """

    def __init__(self, source: Source, rows: Rows) -> None:
        self.source = source
        self.rows = rows
        self.scalars: dict[Hashable, Any] = {}  # tensor -> the name of its value in this row
        self.arrays: dict[Hashable, Any] = {}  # tensor -> its buffer on the chip
        #: Buffer of an input -> the input and its array, where a block loads it once for all.
        self.block_arrays: dict[Any, tuple[Hashable, Any]] = {}
        #: Arrays in shared memory that were read, and whether registers were indexed.
        self.shared_reads: set[Any] = set()
        self.touches_registers = False
        self.allocated: list[Any] = []
        #: What is done for a row, in order.
        self.statements: list[Any] = [tirx.Bind(rows.row, rows.row_value)]
        #: Variables that have one value in a row: its indices, extents, and what was loaded for it.
        self.row_names: set[Any] = {
            rows.row,
            rows.block,
            rows.row_in_block,
            *source.symbols.expressions.values(),
        }
        self.row_known: dict[Hashable, Any] = {}  # loads that are the same in the whole row

    def allocate(self, name: str, elements: int, dtype: str, scope: str = "local") -> Any:
        """A new buffer on the chip."""
        buffer = local_buffer(name, elements, dtype, scope)
        self.allocated.append(buffer)
        return buffer

    def at_own_point(self, nest: int, point: Point, number: int = 0) -> Any:
        """What a nest stores at a point of its own."""
        for inlined in self.source.inlined_before(nest, number):
            self._named_at_own_point(inlined, point)  # one by one: nothing recurses deeply
        axes = self.rows.axes(self.source.digits.nests[nest], point.values)
        return self._value(nest, axes, point, own=True, guard=ALWAYS, number=number)

    def _named_at_own_point(self, nest: int, point: Point) -> Any:
        """The name of what a nest that is evaluated again makes at a point of its own."""
        key = (self.source.group.nests[nest].stores[0].tensor, _OWN)
        if key not in point.known:
            axes = self.rows.axes(self.source.digits.nests[nest], point.values)
            value = self._value(nest, axes, point, own=True, guard=ALWAYS)
            self._name(self.source.group.nests[nest].name, value, point, key)
        return point.known[key]

    def index_of(self, nest: int, point: Point, number: int = 0) -> list[Any]:
        """Where a nest stores at a point of its own."""
        tensor = self.source.group.nests[nest].stores[number].tensor
        return self.rows.axes(self.source.digits.tensors[tensor], point.values)

    # -- nests ------------------------------------------------------------------------------

    def _value(
        self, nest: int, axes: list[Any], point: Point, own: bool, guard: Guard, number: int = 0
    ) -> Any:
        """The value of a nest with its iteration variables at ``axes``, which are the point's own
        where ``own`` says so.
        """
        source = self.source
        block = source.block(nest)
        if block is None:
            (copied,) = source.group.nests[nest].loads
            return self._global(self.source.buffers[copied.tensor], axes, point, guard)
        env = {iv.var: axis for iv, axis in zip(block.iter_vars, axes, strict=True)}
        accesses = iter(source.loads(nest, number))
        conditions = iter(source.conditions(nest, number))

        def load(node: Any) -> Any:
            access, where = next(accesses), next(conditions)
            indices = [self._index(i) for i in node.indices]
            aligned = own and source.digits.is_aligned(nest, access)
            inner = self._narrowed(guard, where, env, point) if access.guarded else guard
            return self._load(access, indices, point, aligned, inner)

        return tvm_ffi.structural_map(
            source.value(nest, number),
            [(tvm.ir.TensorLoad, load), (tirx.Var, lambda var: env.get(var, var))],
        )

    def _narrowed(
        self, guard: Guard, conditions: list[Any], env: dict[Any, Any], point: Point
    ) -> Guard:
        """A guard with further conditions of a nest whose variables are at ``env``."""
        if any(loads_of(condition) for condition in conditions):
            return Guard(None, same_in_lanes=False)
        placed = [
            tvm_ffi.structural_map(c, (tirx.Var, lambda var: env.get(var, var))) for c in conditions
        ]
        condition = self.rows.simplify(all_of(guard.condition, *placed))
        same = guard.same_in_lanes and not _mentions([condition], point)
        if same and point.lane is not None:
            lanes = [
                self._at_lane(condition, point, self.source.const(lane))
                for lane in range(point.lanes)
            ]
            same = all(str(lane) == str(lanes[0]) for lane in lanes)
            condition = lanes[0]
        return Guard(condition, same)

    def _index(self, index: Any) -> Any:
        if str(index.ty.dtype) != self.source.index_type:
            index = tirx.Cast(self.source.index_type, index)
        return self.rows.simplify(index)

    def _load(
        self, access: TensorAccess, indices: list[Any], point: Point, own: bool, guard: Guard
    ) -> Any:
        source = self.source
        maker = source.maker.get(access.tensor)
        if maker is None:
            return self._global(source.buffers[access.tensor], indices, point, guard)
        place = source.plan.placement[maker]
        if place == SCALAR:
            return self.scalars[access.tensor]
        if place not in (INLINE, GLOBAL):
            return self._kept(access.tensor, maker, indices, point, own)
        if own and guard is ALWAYS:
            return self._named_at_own_point(maker, point)
        key = (access.tensor, *map(_spelled, indices), _spelled(guard.condition))
        if key in point.known:
            return point.known[key]
        value = self._value(maker, self._axes_of(maker, indices), point, own, guard)
        if not guard.same_in_lanes:
            return value
        if guard.condition is not None:  # what stands in its lanes itself is not guarded yet
            value = self._guard(value, guard.condition)
        return self._name(source.group.nests[maker].name, value, point, key)

    def _axes_of(self, nest: int, indices: list[Any]) -> list[Any]:
        """The iteration variables at which a nest stores the element at ``indices``."""
        (store,) = self.source.group.nests[nest].stores
        axes = [self.source.const(0)] * len(self.source.group.nests[nest].axes)
        for index, position in zip(store.indices, indices, strict=True):
            for term in index.terms:
                axes[term.var] = position
        return axes

    def _name(self, name: str, value: Any, point: Point, key: Hashable) -> Any:
        var = value_var(name, str(value.ty.dtype))
        point.body += self.bind(var, value)
        point.known[key] = var
        return var

    def bind(self, var: Any, value: Any) -> list[Any]:
        """Statements that give a value its name.

        The value of a computation goes through a register of its own: TVM's Simplify would put it
        in the place of its name, wherever that stands, and so on without end.
        """
        if isinstance(value, tvm.ir.TensorLoad | tirx.Var | tirx.IntImm | tirx.FloatImm):
            return [tirx.Bind(var, value)]
        register = self.allocate(f"{var.name}_value", 1, str(value.ty.dtype))
        zero_index = self.source.const(0)
        return [
            tirx.BufferStore(register, value, [zero_index]),
            tirx.Bind(var, tirx.BufferLoad(register, [zero_index])),
        ]

    # -- results on the chip ------------------------------------------------------------------

    def _kept(
        self, tensor: Hashable, maker: int, indices: list[Any], point: Point, own: bool
    ) -> Any:
        source, layout = self.source, self.source.layout
        array = self.arrays[tensor]
        classes = layout.local[maker]
        same = own and classes == point.classes
        in_registers = source.plan.placement[maker] == REGISTER
        if in_registers:
            self.touches_registers = True
        else:
            self.shared_reads.add(array)
        if same:
            return tirx.BufferLoad(array, [point.element if in_registers else point.slot])
        digits = source.digits.tensors[tensor]
        where = self.rows.point_of(classes, digits, indices)
        lane: Any = source.const(0)
        if layout.lane is not None and layout.lane in source.digits.nest_classes(maker):
            lane = self.rows.value_of(layout.lane, digits, indices)
        if in_registers:
            if source.plan.threads > 1 and classes:
                raise ValueError(f"{array.name} is read by threads that did not write it")
            return tirx.BufferLoad(array, [self.rows.simplify(where * self.lanes() + lane)])
        return tirx.BufferLoad(array, [self.shared_slot(classes, where, lane)])

    def lanes(self) -> int:
        """Lanes of the class that threads walk as a vector; 1 where there is none."""
        return self.source.elements.lanes

    def shared_slot(self, classes: tuple[int, ...], where: Any, lane: Any) -> Any:
        """The place in shared memory of any element of the row.

        Neighbouring threads have neighbouring places, so that no bank is asked twice.
        """
        plan = self.source.plan
        vector = self.source.elements.vector(classes)
        group = where // vector
        step, thread = group // plan.threads, group % plan.threads
        number = (step * vector + where % vector) * self.lanes() + lane
        other = tvm_ffi.structural_map(
            self.rows.linear_thread(),
            (tirx.Var, lambda var: thread if var.same_as(self.rows.thread) else var),
        )
        return self.rows.simplify(number * plan.threads_per_block + other)

    # -- global memory ------------------------------------------------------------------------

    def _global(self, buffer: Any, indices: list[Any], point: Point, guard: Guard) -> Any:
        """An element of an input, loaded with its neighbours where lanes are neighbours."""
        if buffer in self.block_arrays:
            return self._block_input(buffer, indices, point, guard)
        if not guard.same_in_lanes:
            return self._guard(tirx.BufferLoad(buffer, indices), point.inside)
        inside = all_of(point.inside, guard.condition)
        key = (buffer, *map(_spelled, indices), _spelled(guard.condition))
        if key in self.row_known:
            return self.row_known[key]
        if key in point.known:
            return point.known[key]
        if guard.condition is None and self._is_row_constant(indices):
            var = value_var(buffer.name, str(buffer.dtype))
            value = self._guard(tirx.BufferLoad(buffer, indices), self.rows.is_live())
            self.statements.append(tirx.Bind(var, value))
            self.row_names.add(var)
            self.row_known[key] = var
            return var
        offset = self._lane_offset(buffer, indices, point)
        if offset == "same":
            var = value_var(buffer.name, str(buffer.dtype))
            value = self._guard(tirx.BufferLoad(buffer, indices), inside)
            point.before.append(tirx.Bind(var, value))
            point.known[key] = var
            return var
        if offset == "next" and _vectorizes(buffer):
            value = self._vector_load(buffer, indices, point, inside)
            point.known[key] = value
            return value
        value = self._guard(tirx.BufferLoad(buffer, indices), inside)
        return self._name(buffer.name, value, point, key)

    def _block_input(self, buffer: Any, indices: list[Any], point: Point, guard: Guard) -> Any:
        """An element of an input that the block has in shared memory."""
        tensor, array = self.block_arrays[buffer]
        self.shared_reads.add(array)
        classes = self.source.layout.tensor_local(tensor)
        where = self.rows.point_of(classes, self.source.digits.tensors[tensor], indices)
        value = tirx.BufferLoad(array, [self.block_slot(classes, where)])
        if guard is not ALWAYS:
            return value
        key = (buffer, *map(_spelled, indices))
        if key in self.row_known:
            return self.row_known[key]
        if key in point.known:
            return point.known[key]
        if classes:
            return self._name(buffer.name, value, point, key)
        var = value_var(buffer.name, str(buffer.dtype))
        self.statements.append(tirx.Bind(var, value))
        self.row_names.add(var)
        self.row_known[key] = var
        return var

    def block_slot(self, classes: tuple[int, ...], where: Any) -> Any:
        """The place of an element that all rows of a block share, as :meth:`shared_slot`."""
        if not self.source.elements.spreads(classes):
            return self.rows.simplify(where)
        vector, threads = self.source.elements.vector(classes), self.source.plan.threads
        group = where // vector
        number = group // threads * vector + where % vector
        return self.rows.simplify(number * threads + group % threads)

    def _is_row_constant(self, indices: list[Any]) -> bool:
        """Whether indices depend on the row only, so that one load serves all of its points."""
        found: list[bool] = []
        for index in indices:
            tvm_ffi.structural_walk(
                index, (tirx.Var, lambda var: found.append(var in self.row_names))
            )
        return all(found)

    def _guard(self, load: Any, condition: Any | None) -> Any:
        if condition is None:
            return load
        return tirx.if_then_else(condition, load, harmless(str(load.ty.dtype)))

    def _lane_offset(self, buffer: Any, indices: list[Any], point: Point) -> str:
        """How the element moves from lane to lane: not at all, to the next, or otherwise."""
        if point.lane is None:
            return "other"
        flat: Any = self.source.const(0)
        for index, stride in zip(indices, strides(buffer), strict=True):
            flat = flat + index * stride
        found = tvm.sym.detect_linear_equation(self.rows.simplify(flat), [point.lane])
        if not found or not isinstance(found[0], tirx.IntImm):
            return "other"
        step, first = int(found[0].value), found[1]
        if step == 0:
            return "same" if not _mentions(indices, point) else "other"
        width = min(point.lanes, VECTOR_BYTES // element_bytes(buffer.dtype))
        aligned = self.rows.analyzer.can_prove_equal(first % width, 0)
        return "next" if step == 1 and aligned and not _mentions([first], point) else "other"

    def _vector_load(
        self, buffer: Any, indices: list[Any], point: Point, condition: Any | None
    ) -> Any:
        dtype = str(buffer.dtype)
        fragment = self.allocate(f"{buffer.name}_vector", point.lanes, dtype)

        def copy(at: Any) -> Any:
            moved = [self._at_lane(i, point, at) for i in indices]
            return tirx.BufferStore(fragment, tirx.BufferLoad(buffer, moved), [at])

        if condition is not None:
            lane = tirx.Var("lane", self.source.index_type)
            fill = tirx.BufferStore(fragment, harmless(dtype), [lane])
            point.before.append(loop(point.lanes, fill, lane))
        point.before += self.vector_copies(buffer, point, copy, condition)
        return tirx.BufferLoad(fragment, [point.lane])

    def _at_lane(self, index: Any, point: Point, at: Any) -> Any:
        return self.rows.simplify(
            tvm_ffi.structural_map(
                index, (tirx.Var, lambda var: at if var.same_as(point.lane) else var)
            )
        )

    def vector_copies(
        self, buffer: Any, point: Point, copy: Any, condition: Any | None
    ) -> list[Any]:
        """Statements that move all lanes between global memory and registers.

        Parameters
        ----------
        buffer : Buffer
            In global memory; its type decides how wide one access is.
        point : Point
            The lanes.
        copy : callable
            Lane -> the statement that moves its element.
        condition : expression or None
            When to do so; None: always.
        """
        width = min(point.lanes, VECTOR_BYTES // element_bytes(buffer.dtype))
        made = []
        for start in range(0, point.lanes, width):
            var = tirx.Var("lane", self.source.index_type)
            at = var + start if width > 1 else self.source.const(start)
            statement = loop(width, copy(at), var, tirx.ForKind.VECTORIZED)
            if condition is not None:
                statement = tirx.IfThenElse(condition, statement, None)
            made.append(statement)
        return made

    def store(self, nest: int, value: Any, point: Point, number: int = 0) -> None:
        """Store a value of an output to global memory, with its neighbours where possible."""
        tensor = self.source.group.nests[nest].stores[number].tensor
        buffer = self.source.buffers[tensor]
        indices = self.index_of(nest, point, number)
        if self._lane_offset(buffer, indices, point) == "next" and _vectorizes(buffer):
            fragment = self.allocate(f"{buffer.name}_vector", point.lanes, str(buffer.dtype))
            point.body.append(tirx.BufferStore(fragment, value, [point.lane]))

            def copy(at: Any) -> Any:
                moved = [self._at_lane(i, point, at) for i in indices]
                return tirx.BufferStore(buffer, tirx.BufferLoad(fragment, [at]), moved)

            point.after += self.vector_copies(buffer, point, copy, point.inside)
            return
        statement = tirx.BufferStore(buffer, value, indices)
        if point.inside is not None:
            statement = tirx.IfThenElse(point.inside, statement, None)
        point.body.append(statement)


def _spelled(expr: Any | None) -> Hashable:
    """An expression as a key: its text, and the variables in it, several of which have one name."""
    return None if expr is None else (str(expr), *vars_of(expr))


def _vectorizes(buffer: Any) -> bool:
    """Whether the code generator prints vectors of this type rightly."""
    return str(buffer.dtype) != "bool"


def _mentions(expressions: list[Any], point: Point) -> bool:
    """Whether expressions use names that are given inside of the loop over lanes."""
    given = {bind.var for bind in point.body if isinstance(bind, tirx.Bind)}
    found: list[bool] = []
    for expression in expressions:
        tvm_ffi.structural_walk(expression, (tirx.Var, lambda var: found.append(var in given)))
    return any(found)
