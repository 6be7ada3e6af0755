"""The group that a kernel is written from: blocks, classes and layout, as the plan numbers them."""

from __future__ import annotations

import functools
from collections.abc import Hashable
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from ...analysis.blocks import loads_of
from ...analysis.extents import Extent
from ...analysis.nest_reader import read_with_symbols, reduction_update
from ...analysis.nests import TensorAccess
from ...planning.digits import Digits
from ...planning.elements import Elements
from ...planning.kernel_plan import COLUMN, GLOBAL, INLINE, KernelPlan
from ...planning.launch import Launch
from ...planning.layout import Layout, split_class
from ...planning.reuse import Reuse, ReuseDecision
from ...planning.shared import SharedArrays
from ...planning.stage import copy_key, stage_inputs
from ...planning.storage import lifetimes_of, readers_of_kept, shared_arrays


class Source:
    """Everything about a group that does not change while its kernel is written.

    Parameters
    ----------
    func : tirx.PrimFunc
        The unscheduled PrimFunc.
    plan : KernelPlan
        Its plan.

    Raises
    ------
    ValueError
        The plan belongs to another function.
    """

    def __init__(self, func: tirx.PrimFunc, plan: KernelPlan) -> None:
        self.func = func
        self.plan = plan
        read, self.symbols, buffers, self.blocks = read_with_symbols(func)
        staged = [read.inputs[i] for i in plan.staged]
        self.group = stage_inputs(read, staged)
        if len(plan.placement) != len(self.group.nests):
            raise ValueError(
                f"the plan has {len(plan.placement)} nests, the function {len(self.group.nests)}"
            )
        self.copies = len(staged)
        self.block_inputs = tuple(read.inputs[i] for i in plan.block_inputs)
        self.buffers: dict[Hashable, Any] = dict(enumerate(buffers))
        self.buffers.update({copy_key(t): self.buffers[t] for t in staged})
        self.digits = Digits(self.group)
        spoilt = self.digits.opaque | self.digits.reduced
        walked = {*plan.parallel, *plan.local}
        if not walked <= set(self.digits.extents) or spoilt & set(plan.parallel):
            raise ValueError("the plan divides other axes than the function has")
        lane = split_class(self.digits, plan.lane, plan.vector) if plan.lane >= 0 else None
        self.layout = Layout(self.digits, plan.parallel, plan.local, lane)
        if str(self.layout.rows) != plan.rows:
            raise ValueError(f"the plan has {plan.rows} rows, the function {self.layout.rows}")
        launch = Launch(plan.threads, plan.rows_per_block, plan.vector, plan.chunk, plan.bound)
        self.elements = Elements(self.layout, launch, plan.mode == COLUMN)
        self.maker = {s.tensor: n for n, nest in enumerate(self.group.nests) for s in nest.stores}
        self.outputs = frozenset(self.group.outputs)
        self.kept = [n for n, place in enumerate(plan.placement) if place != INLINE]
        loops = [iv.var for block in self.blocks for iv in block.iter_vars]
        self.index_type = str(loops[0].ty.dtype) if loops else "int64"
        self._values: dict[tuple[int, int], Any] = {}
        self._loads: dict[tuple[int, int], list[TensorAccess]] = {}
        self._inlined: dict[tuple[int, int], list[int]] = {}
        self._conditions: dict[tuple[int, int], list[list[Any]]] = {}

    def const(self, value: int) -> Any:
        """An index constant."""
        return tirx.IntImm(self.index_type, value)

    def extent(self, extent: Extent) -> Any:
        """An extent as an expression."""
        factors = [] if extent.number == 1 and extent.symbols else [self.const(extent.number)]
        for name in extent.symbols:
            symbol = self.symbols.expressions[name]
            if str(symbol.ty.dtype) != self.index_type:
                symbol = tirx.Cast(self.index_type, symbol)
            factors.append(symbol)
        return functools.reduce(lambda a, b: a * b, factors)

    def block(self, nest: int) -> Any:
        """The block of a nest; None for the copy of an input."""
        return None if nest < self.copies else self.blocks[nest - self.copies]

    def value(self, nest: int, number: int = 0) -> Any:
        """What a nest stores, or combines with its accumulator."""
        key = (nest, number)
        if key not in self._values:
            raw = self._raw_value(nest, number)
            self._values[key] = _with_plain_indices(raw, self.block(nest))
        return self._values[key]

    def _raw_value(self, nest: int, number: int) -> Any:
        block = self.block(nest)
        if self.group.nests[nest].reduces:
            return reduction_update(block, number)[1]
        return block.values[number]

    def loads(self, nest: int, number: int = 0) -> list[TensorAccess]:
        """The accesses of the loads in :meth:`value`, in the order of a walk over it."""
        key = (nest, number)
        if key not in self._loads:
            block = self.block(nest)
            if block is None:
                return []
            everything = [
                load
                for load in loads_of(block.stmt.body)
                if not any(load.source.same_as(s.buffer) for s in block.stores)
            ]
            known = dict(zip(everything, self.group.nests[nest].loads, strict=True))
            raw = self._raw_value(nest, number)
            self._loads[key] = [known[load] for load in loads_of(raw)]
        return self._loads[key]

    def inlined_before(self, nest: int, number: int = 0) -> list[int]:
        """Nests evaluated again for a nest at its own point, each before those that need it."""
        key = (nest, number)
        if key not in self._inlined:
            found: set[int] = set()
            stack = [key]
            while stack:
                reader, part = stack.pop()
                for access in self.loads(reader, part):
                    maker = self.maker.get(access.tensor, -1)
                    inlined = maker >= 0 and self.plan.placement[maker] in (INLINE, GLOBAL)
                    if not inlined or maker in found or access.guarded:
                        continue
                    if self.digits.is_aligned(reader, access):
                        found.add(maker)
                        if maker >= self.copies:
                            stack.append((maker, 0))
            self._inlined[key] = sorted(found)
        return self._inlined[key]

    def conditions(self, nest: int, number: int = 0) -> list[list[Any]]:
        """The conditions under which each load in :meth:`value` happens, in the same order."""
        key = (nest, number)
        if key not in self._conditions:
            value = self.value(nest, number)
            found: dict[Any, list[Any]] = {}

            def visit(call: Any) -> None:
                if getattr(call.op, "name", "").endswith("if_then_else"):
                    for load in loads_of(call.args[1]):
                        found.setdefault(load, []).append(call.args[0])
                    for load in loads_of(call.args[2]):
                        found.setdefault(load, []).append(tirx.Not(call.args[0]))

            tvm_ffi.structural_walk(value, (tvm.ir.Call, visit))
            self._conditions[key] = [found.get(load, []) for load in loads_of(value)]
        return self._conditions[key]

    def shared_arrays(self) -> SharedArrays:
        """The arrays in shared memory, as the plan reckoned with them."""
        decision = ReuseDecision(self.layout)
        direct = frozenset(n for n in self.kept if self.plan.placement[n] == GLOBAL)
        readers = readers_of_kept(decision, Reuse(frozenset(self.kept), (), ()), direct)
        return shared_arrays(
            decision,
            self.elements,
            self.plan.placement,
            lifetimes_of(readers),
            self.block_inputs,
            direct,
        )


def _with_plain_indices(value: Any, block: Any) -> Any:
    """A value of a block with the indices of its loads as plain as the block's axes allow.

    A reshape that only adds an axis reads at ``(v2 // 5 + v1) % 3, v2 % 5``. Once ``v2`` stands for
    an index of another nest, the divisions stay, and TVM puts some of them together wrongly.
    """
    analyzer = block.analyzer()

    def plain(load: Any) -> Any:
        indices = [analyzer.simplify(index) for index in load.indices]
        if all(a.same_as(b) for a, b in zip(indices, load.indices, strict=True)):
            return load
        return tirx.BufferLoad(load.source, indices)

    return tvm_ffi.structural_map(value, (tvm.ir.TensorLoad, plain))


def value_var(name: str, dtype: str) -> Any:
    """A variable for a value; its name is none of a CUDA function, like ``max`` or ``exp2``.

    TVM's code generator takes a variable's name as it is, and calls functions by theirs.
    """
    return tirx.Var(name if "_" in name else f"{name}_", dtype)


def strides(buffer: Any) -> list[Any]:
    """Elements between neighbours along each axis of a compact buffer."""
    result: list[Any] = []
    stride: Any = 1
    for extent in reversed(buffer.shape):
        result.append(stride)
        stride = stride * extent
    return result[::-1]


def harmless(dtype: str) -> Any:
    """What stands in for an element that is not there: no arithmetic on it fails."""
    return tirx.const(1 if dtype.startswith(("int", "uint")) else 0, dtype)


def sequence(statements: list[Any]) -> Any:
    """The statements one after the other."""
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(statements)


def loop(extent: Any, body: Any, var: Any, kind: Any = tirx.ForKind.UNROLLED) -> Any:
    """A loop, or the body itself where there is one turn only (``var`` is then a constant)."""
    if isinstance(extent, int):
        if extent == 1:
            return body
        extent = tirx.IntImm(str(var.ty.dtype), extent)
    return tirx.For(var, tirx.IntImm(str(var.ty.dtype), 0), extent, kind, body)


def local_buffer(name: str, elements: int, dtype: str, scope: str = "local") -> Any:
    """A buffer of one axis on the chip.

    One of a single element gets a second that nothing touches: TVMScript prints it as a scalar
    otherwise, and cannot read what it printed where that scalar is given another name.
    """
    size = max(2, elements) if scope == "local" else elements
    return tirx.decl_buffer([size], dtype, name, scope=scope)


def all_of(*conditions: Any) -> Any | None:
    """The conjunction of conditions, of which those that are None always hold."""
    known = [condition for condition in conditions if condition is not None]
    return tirx.all(*known) if known else None
