"""Reads the nests of a PrimFunc off its blocks."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import lru_cache
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from .access import writes_own_place
from .blocks import Block, BodyKey, is_reduction, iter_params, loads_of, parse_blocks, static_int
from .extents import Symbols
from .index import IndexReader
from .nests import Axis, Nest, Nests, Tensor, TensorAccess, Unreadable, live

#: Calls that take the special function unit or a long sequence of instructions, and what one of
#: them weighs in additions. Source: CUDA C++ Programming Guide 13.0, "Arithmetic Instructions":
#: 16 results a clock and multiprocessor for special functions, 128 for additions.
SPECIAL_WEIGHT = 8.0

_CHEAP_CALLS = ("if_then_else", "Select", "fabs", "floor", "ceil", "reinterpret", "likely")


def read_nests(func: tirx.PrimFunc) -> Nests:
    """Read the nests of an unscheduled PrimFunc; tensors are numbered, parameters first.

    Raises
    ------
    Unreadable
        It holds something else than loop nests over plain blocks.
    """
    result = _read_once(BodyKey(func))
    if isinstance(result, str):
        raise Unreadable(result)
    return result


@lru_cache(maxsize=2048)
def _read_once(key: BodyKey) -> Nests | str:
    try:
        return _Reader(key.func, Symbols()).read()
    except Unreadable as error:
        return str(error)


def read_with_symbols(func: tirx.PrimFunc) -> tuple[Nests, Symbols, list[Any], list[Block]]:
    """The nests with what is needed to write code from them.

    Returns
    -------
    nests : Nests
        As :func:`read_nests` has them.
    symbols : Symbols
        The expressions that symbolic extents stand for.
    buffers : list
        The buffer of each tensor number.
    blocks : list of Block
        The block of each nest.

    Raises
    ------
    Unreadable
        As for :func:`read_nests`.
    """
    reader = _Reader(func, Symbols())
    return reader.read(), reader.symbols, reader.buffers, reader.blocks


class _Reader:
    def __init__(self, func: tirx.PrimFunc, symbols: Symbols) -> None:
        self.symbols = symbols
        parsed = parse_blocks(func)
        if not parsed:
            raise Unreadable("it is no sequence of loop nests over plain blocks")
        self.blocks = parsed
        self.buffers: list[Any] = list(iter_params(func))
        self.params = len(self.buffers)
        self.numbers: dict[Any, int] = {buffer: i for i, buffer in enumerate(self.buffers)}

    def read(self) -> Nests:
        extents = [iv.dom.extent for block in self.blocks for iv in block.iter_vars]
        extents += [extent for buffer in self.buffers for extent in buffer.shape]
        if any(static_int(extent) == 0 for extent in extents):
            raise Unreadable("it has an extent of 0")
        every = [self._nest(block) for block in self.blocks]
        alive = live(every, range(self.params))
        nests = tuple(every[n] for n in alive)
        self.blocks = [self.blocks[n] for n in alive]
        written = [store.tensor for nest in nests for store in nest.stores]
        if len(set(written)) != len(written):
            raise Unreadable("a tensor is written piece by piece")
        read_before: set[Hashable] = set()
        for nest in nests:
            read_before.update(load.tensor for load in nest.loads)
            if any(store.tensor in read_before for store in nest.stores):
                raise Unreadable("a tensor is read before it is written")
        made = set(written)
        inputs = {load.tensor for nest in nests for load in nest.loads} - made
        return Nests(
            nests,
            {
                i: Tensor(tuple(map(self.symbols.extent, b.shape)), str(b.dtype))
                for i, b in enumerate(self.buffers)
            },
            tuple(i for i in range(self.params) if i in inputs),
            tuple(i for i in range(self.params) if i in made),
        )

    def _number(self, buffer: Any) -> int:
        if buffer not in self.numbers:
            self.numbers[buffer] = len(self.buffers)
            self.buffers.append(buffer)
        return self.numbers[buffer]

    def _nest(self, block: Block) -> Nest:
        if not writes_own_place(block):
            raise Unreadable(f"{block.name} does not store at its own iteration variables")
        reduces = bool(block.reduction_vars)
        if not reduces and len(block.stores) != 1:
            raise Unreadable(f"{block.name} stores several values at once")
        if reduces:
            for number in range(len(block.stores)):
                reduction_update(block, number)  # raises where it is none
        if not reduces and _binds(block):
            raise Unreadable(f"{block.name} names intermediate values")
        if not reduces and any(
            ld.source.same_as(block.stores[0].buffer) for ld in loads_of(block.stmt.body)
        ):
            raise Unreadable(f"{block.name} updates a tensor in place")
        axes = tuple(
            Axis(self.symbols.extent(iv.dom.extent), is_reduction(iv)) for iv in block.iter_vars
        )
        reader = IndexReader(
            [iv.var for iv in block.iter_vars],
            [axis.extent for axis in axes],
            self.symbols,
            block.analyzer(),
        )
        guarded = guarded_loads(block.stmt.body)
        return Nest(
            block.name,
            axes,
            tuple(self._access(reader, s.buffer, s.indices, False) for s in block.stores),
            tuple(
                self._access(reader, load.source, tuple(load.indices), load in guarded)
                for load in loads_of(block.stmt.body)
                if not any(load.source.same_as(s.buffer) for s in block.stores)
            ),
            _cost(block),
            not reduces and isinstance(block.values[0], tvm.ir.TensorLoad),
        )

    def _access(
        self, reader: IndexReader, buffer: Any, indices: tuple[Any, ...], guarded: bool
    ) -> TensorAccess:
        gathers = any(loads_of(index) for index in indices)
        read = tuple(map(reader.read, indices))
        if guarded:
            extents = [self.symbols.extent(extent) for extent in buffer.shape]
            guarded = not all(i.stays_in(e) for i, e in zip(read, extents, strict=True))
            read = tuple(i.within(e) for i, e in zip(read, extents, strict=True))
        return TensorAccess(self._number(buffer), read, guarded, gathers)


def _binds(block: Block) -> bool:
    found: list[Any] = []
    tvm_ffi.structural_walk(block.stmt.body, (tirx.Bind, found.append))
    return bool(found)


def guarded_loads(stmt: Any) -> set[Any]:
    """Loads that happen in one branch of a conditional expression only."""
    found: set[Any] = set()

    def visit(call: Any) -> None:
        if getattr(call.op, "name", "").endswith("if_then_else"):
            for branch in call.args[1:]:
                found.update(loads_of(branch))

    tvm_ffi.structural_walk(stmt, (tvm.ir.Call, visit))
    return found


#: How two partial results are combined, by the node that a reducing block stores.
COMBINERS = {"Add": tirx.Add, "Mul": tirx.Mul, "Max": tirx.Max, "Min": tirx.Min}


def reduction_update(block: Block, number: int) -> tuple[str, Any, Any]:
    """What a reducing block does to one of its accumulators.

    Parameters
    ----------
    block : Block
        A block with reduction variables.
    number : int
        Which of its stores.

    Returns
    -------
    combiner : str
        Key of :data:`COMBINERS`.
    value : tirx.Expr
        What is combined with the accumulator.
    init : tirx.Expr
        The value that the accumulator begins with.

    Raises
    ------
    Unreadable
        It is no sum, product, maximum or minimum.
    """
    store = block.stores[number]
    bound: dict[Any, Any] = {}
    tvm_ffi.structural_walk(
        block.stmt.body, (tirx.Bind, lambda bind: bound.__setitem__(bind.var, bind.value))
    )
    value = block.values[number]
    value = bound.get(value, value) if isinstance(value, tirx.Var) else value
    init: list[Any] = []
    if block.stmt.init is not None:
        tvm_ffi.structural_walk(
            block.stmt.init,
            (
                tirx.BufferStore,
                lambda s: init.append(s.value) if s.buffer.same_as(store.buffer) else None,
            ),
        )
    kind = type(value).__name__
    if kind in COMBINERS and len(init) == 1 and not loads_of(init[0]):
        for accumulator, other in ((value.a, value.b), (value.b, value.a)):
            own = isinstance(accumulator, tvm.ir.TensorLoad) and accumulator.source.same_as(
                store.buffer
            )
            if own and not _mentions(other, block, bound):
                return kind, other, init[0]
    raise Unreadable(f"{block.name} reduces by something else than a sum, product or extremum")


def _mentions(expr: Any, block: Block, bound: Mapping[Any, Any]) -> bool:
    """Whether an update depends on accumulators or on values bound beforehand."""
    names: list[Any] = []
    tvm_ffi.structural_walk(expr, (tirx.Var, names.append))
    if any(name in bound for name in names):
        return True
    return any(ld.source.same_as(s.buffer) for ld in loads_of(expr) for s in block.stores)


def _cost(block: Block) -> float:
    """Additions that one evaluation is worth; what computes indices is left out."""
    in_indices: set[Any] = set()
    for load in loads_of(block.stmt.body):
        for index in load.indices:
            tvm_ffi.structural_walk(index, (tirx.Expr, in_indices.add))
    counted = [0.0]

    def weigh(weight: float) -> Any:
        def visit(node: Any) -> None:
            if node not in in_indices:
                counted[0] += weight

        return visit

    def call(node: Any) -> None:
        name = getattr(node.op, "name", "").rsplit(".", 1)[-1]
        counted[0] += 1.0 if name in _CHEAP_CALLS else SPECIAL_WEIGHT

    for value in block.values:
        plain = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Max, tirx.Min)
        tvm_ffi.structural_walk(
            value,
            [*((kind, weigh(1.0)) for kind in plain), (tirx.Div, weigh(4.0)), (tvm.ir.Call, call)],
        )
    return counted[0]
