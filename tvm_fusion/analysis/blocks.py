"""The blocks of an unscheduled PrimFunc as plain data: iteration variables, reads, writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

#: Calls that reach outside of the kernel, or that have effects; any other intrinsic computes a
#: value and nothing else.
IMPURE_CALLS = frozenset(
    {
        "tirx.call_packed",
        "tirx.call_cpacked",
        "tirx.call_extern",
        "tirx.tvm_call_packed",
        "tirx.tvm_call_cpacked",
        "tirx.tvm_access_ptr",
        "tirx.tvm_storage_sync",
        "tirx.ptx_cp_async",
    }
)


@dataclass(frozen=True)
class Access:
    """One load or store: a buffer and its index expressions."""

    buffer: Any
    indices: tuple[Any, ...]


@dataclass(frozen=True)
class Block:
    """One root-level block of a PrimFunc.

    ``stores`` are what the body writes, ``loads`` what it reads besides its own output;
    ``values`` are the stored expressions, one for each store.
    """

    name: str
    iter_vars: tuple[Any, ...]
    stores: tuple[Access, ...]
    loads: tuple[Access, ...]
    values: tuple[Any, ...]
    stmt: Any

    @property
    def reduction_vars(self) -> tuple[Any, ...]:
        """The iteration variables that are reduced."""
        return tuple(iv.var for iv in self.iter_vars if is_reduction(iv))

    @property
    def spatial_vars(self) -> tuple[Any, ...]:
        """The iteration variables that are not reduced."""
        return tuple(iv.var for iv in self.iter_vars if not is_reduction(iv))

    def analyzer(self) -> Any:
        """An arithmetic analyzer that knows the domain of every iteration variable."""
        analyzer = tvm.sym.Analyzer()
        for iv in self.iter_vars:
            analyzer.bind(iv.var, iv.dom)
        return analyzer


class BodyKey:
    """A PrimFunc seen as its body: attributes added later do not change what it is."""

    def __init__(self, func: tirx.PrimFunc) -> None:
        self.func = func

    def __hash__(self) -> int:
        return hash(self.func.body)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BodyKey) and self.func.body.same_as(other.func.body)


def is_reduction(iter_var: Any) -> bool:
    """Whether an iteration variable is reduced over."""
    return int(iter_var.iter_type) == int(tirx.IterVar.CommReduce)


def reduces(func: tirx.PrimFunc) -> bool:
    """Whether some block of a PrimFunc has an axis to reduce over."""
    blocks: list[Any] = []
    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, blocks.append))
    return any(is_reduction(iter_var) for block in blocks for iter_var in block.iter_vars)


def root_nests(func: tirx.PrimFunc) -> list[Any]:
    """The root-level statements of a PrimFunc that do work, in order."""
    body = func.body
    if isinstance(body, s_tir.SBlockRealize):
        body = body.block.body
    while type(body).__name__ in ("AllocBuffer", "DeclBuffer", "AttrStmt") and hasattr(
        body, "body"
    ):
        body = body.body
    statements = list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]
    idle = ("AllocBuffer", "DeclBuffer", "Evaluate")
    return [s for s in statements if type(s).__name__ not in idle]


def parse_blocks(func: tirx.PrimFunc) -> list[Block] | None:
    """Read a PrimFunc as a sequence of perfectly nested blocks.

    Parameters
    ----------
    func : tirx.PrimFunc
        An unscheduled PrimFunc, as ``LegalizeOps`` makes them.

    Returns
    -------
    list of Block, or None
        None where the function is anything else: thread bindings, loops or branches inside
        of a block, calls that reach outside.
    """
    if not isinstance(func.body, s_tir.SBlockRealize):
        return None
    blocks = []
    for statement in root_nests(func):
        while isinstance(statement, tirx.For):
            if statement.kind != tirx.ForKind.SERIAL:
                return None
            statement = statement.body
        if not isinstance(statement, s_tir.SBlockRealize):
            return None
        block = _parse_block(statement.block)
        if block is None:
            return None
        blocks.append(block)
    return blocks


def _parse_block(block: Any) -> Block | None:
    statements = list(block.body.seq) if isinstance(block.body, tirx.SeqStmt) else [block.body]
    stores = []
    bound: list[Any] = []
    for statement in statements:
        if type(statement).__name__ == "Bind":
            bound.append(statement.value)
        elif isinstance(statement, tirx.BufferStore):
            stores.append(statement)
        else:
            return None
    if not stores or not all(_is_pure(e) for e in [*bound, *(s.value for s in stores)]):
        return None
    written = [s.buffer for s in stores]
    loads = [
        Access(load.source, tuple(load.indices))
        for expr in [*bound, *(s.value for s in stores)]
        for load in loads_of(expr)
        if not any(load.source.same_as(w) for w in written)
    ]
    return Block(
        name=block.name_hint,
        iter_vars=tuple(block.iter_vars),
        stores=tuple(Access(s.buffer, tuple(s.indices)) for s in stores),
        loads=tuple(loads),
        values=tuple(s.value for s in stores),
        stmt=block,
    )


def loads_of(expr: Any) -> list[Any]:
    """Every tensor load in an expression or statement, indices of loads included."""
    found: list[Any] = []
    tvm_ffi.structural_walk(expr, (tvm.ir.TensorLoad, found.append))
    return found


def vars_of(expr: Any) -> list[Any]:
    """Every scalar variable in an expression."""
    found: list[Any] = []
    tvm_ffi.structural_walk(expr, (tirx.Var, found.append))
    return found


def _is_pure(expr: Any) -> bool:
    names: list[str] = []
    tvm_ffi.structural_walk(
        expr, (tvm.ir.Call, lambda call: names.append(getattr(call.op, "name", "unknown")))
    )
    return not any(
        name in IMPURE_CALLS or not name.startswith(("tirx.", "prim.")) for name in names
    )


def element_bytes(dtype: Any) -> int:
    """Bytes of one element of ``dtype``, at least 1."""
    parsed = tvm.DataType(str(dtype))
    return max(1, (parsed.bits * parsed.lanes + 7) // 8)


def static_product(extents: Sequence[Any]) -> int | None:
    """The product of constant extents, or None if one of them is symbolic."""
    total = 1
    for extent in extents:
        value = static_int(extent)
        if value is None:
            return None
        total *= value
    return total


def static_int(expr: Any) -> int | None:
    """The value of a constant integer expression, or None."""
    if isinstance(expr, int):
        return expr
    if isinstance(expr, tirx.IntImm):
        return int(expr.value)
    return None


def iter_params(func: tirx.PrimFunc) -> Iterator[Any]:
    """The parameters of a PrimFunc that are buffers."""
    for param in func.params:
        if hasattr(param.ty, "shape"):
            yield param
