"""The op kind of a PrimFunc, read from its structure and never from its name."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx

from .access import IndexMap, classify_load, is_pure_reduction, writes_own_place
from .blocks import (
    Block,
    BodyKey,
    element_bytes,
    is_reduction,
    iter_params,
    loads_of,
    parse_blocks,
    static_product,
    vars_of,
)
from .op_kind import FusePattern, OpKind

#: The attribute that AnnotateOpKind sets and everything else honours.
OP_KIND_ATTR = "tvm_fusion.op_kind"

#: The PrimFunc that a specialised or split one was made of, by name.
ORIGIN_ATTR = "tvm_fusion.origin"


@dataclass(frozen=True)
class Description:
    """What analysis found out about one PrimFunc.

    Parameters
    ----------
    kind : OpKind
        What the op does.
    pattern : FusePattern
        How it may take part in post-dominator fusion.
    is_reshape : bool
        The op is a pure reshape of one tensor.
    keeps_axes : bool
        A reshape that only adds or drops axes of extent 1.
    reduction_extents : tuple of int or None
        For each reducing block, the number of points that one output element is reduced from;
        None where symbolic.
    accumulator_bytes : int
        Bytes of one partial result of the widest reducing block (all its outputs together).
    """

    kind: OpKind
    pattern: FusePattern
    is_reshape: bool = False
    keeps_axes: bool = False
    reduction_extents: tuple[int | None, ...] = ()
    accumulator_bytes: int = 0

    def shared_bytes(self, threads_per_block: int, warp_threads: int) -> int:
        """Bytes that one thread block stages for the reductions, at most.

        A tree reduction keeps one partial result a thread, and no more threads than points:
        ``accumulator_bytes * min(threads, points rounded up to a warp)``, for the reducing block
        that needs most, since one follows the other.

        Parameters
        ----------
        threads_per_block : int
            Most threads that a block may have.
        warp_threads : int
            Threads in a warp.
        """
        most = 0
        for extent in self.reduction_extents:
            points = threads_per_block if extent is None else extent
            rounded = -(-points // warp_threads) * warp_threads
            most = max(most, min(threads_per_block, rounded))
        return most * self.accumulator_bytes


_BARRIER = Description(OpKind.BARRIER, FusePattern.OPAQUE)


def describe(func: tirx.PrimFunc) -> Description:
    """Classify a PrimFunc.

    Parameters
    ----------
    func : tirx.PrimFunc
        Any PrimFunc. Scheduled ones, and those that are not understood, are barriers.

    Returns
    -------
    Description
        Computed once for each distinct body.
    """
    if func.attrs and func.attrs.get("tirx.is_scheduled"):
        return _BARRIER
    return _describe_once(BodyKey(func))


def contracts(func: tirx.PrimFunc) -> bool:
    """Whether some block of an unscheduled PrimFunc is a matrix product or convolution."""
    return _contracts_once(BodyKey(func))


@lru_cache(maxsize=2048)
def _contracts_once(key: BodyKey) -> bool:
    blocks = parse_blocks(key.func) or []
    return any(block.reduction_vars and _is_contraction(block) for block in blocks)


@lru_cache(maxsize=2048)
def _describe_once(key: BodyKey) -> Description:
    func = key.func
    blocks = parse_blocks(func)
    if not blocks:
        return _BARRIER
    params = list(iter_params(func))
    parts = [_block_part(block) for block in blocks]
    if OpKind.BARRIER in parts:
        return _BARRIER
    contractions = parts.count(OpKind.CONTRACTION)
    reducing = [b for b, part in zip(blocks, parts, strict=True) if part is OpKind.REDUCTION]
    kind = _combine(blocks, parts, contractions, reducing)
    is_reshape = _is_reshape(func, blocks, params)
    return Description(
        kind=kind,
        pattern=_pattern(kind, blocks),
        is_reshape=is_reshape,
        keeps_axes=is_reshape and _keeps_axes(blocks[0]),
        reduction_extents=tuple(
            static_product([iv.dom.extent for iv in b.iter_vars if is_reduction(iv)])
            for b in reducing
        ),
        accumulator_bytes=max(
            (sum(element_bytes(s.buffer.dtype) for s in b.stores) for b in reducing), default=0
        ),
    )


def _block_part(block: Block) -> OpKind:
    """The kind of a single block."""
    if not writes_own_place(block):
        return OpKind.BARRIER
    maps = [classify_load(block, load) for load in block.loads]
    if IndexMap.DATA in maps:
        return OpKind.BARRIER
    if block.reduction_vars:
        return OpKind.CONTRACTION if _is_contraction(block) else OpKind.REDUCTION
    if len(block.stores) != 1:
        return OpKind.BARRIER
    if all(m in (IndexMap.IDENTITY, IndexMap.BROADCAST) for m in maps):
        moves = isinstance(block.values[0], tvm.ir.TensorLoad) and maps != [IndexMap.IDENTITY]
        return OpKind.INJECTIVE if moves else OpKind.ELEMENTWISE
    return OpKind.INJECTIVE


def _is_contraction(block: Block) -> bool:
    """Whether a reducing block sums products and reuses an operand along an output axis."""
    if len(block.stores) != 1:
        return False
    products: list[Any] = []
    tvm_ffi.structural_walk(block.values[0], (tirx.Mul, products.append))
    reduced = set(map(hash, block.reduction_vars))
    spatial = {hash(v) for v in block.spatial_vars}
    for product in products:
        sides = [loads_of(product.a), loads_of(product.b)]
        if not all(sides):
            continue
        used = [_hashes(side) for side in sides]
        if all(u & reduced for u in used) and any(spatial - u for u in used):
            return True
    return False


def _hashes(loads: list[Any]) -> set[int]:
    return {hash(v) for load in loads for index in load.indices for v in vars_of(index)}


def _combine(
    blocks: list[Block], parts: list[OpKind], contractions: int, reducing: list[Block]
) -> OpKind:
    """The kind of a PrimFunc from the kinds of its blocks."""
    if not contractions and not reducing:
        return _combine_maps(blocks, parts)
    if contractions:
        return OpKind.CONTRACTION if contractions == 1 and not reducing else OpKind.COMPOSITE
    rows = [tuple(str(e) for e in _domain(block)) for block in reducing]
    if any(row != rows[0] for row in rows):
        return OpKind.COMPOSITE
    last_reducing = max(i for i, block in enumerate(blocks) if block in reducing)
    widened = any(
        _domain_size(block) != _domain_size(reducing[0]) for block in blocks[last_reducing + 1 :]
    )
    return OpKind.ROW_NORM if len(reducing) > 1 or widened else OpKind.REDUCTION


def _combine_maps(blocks: list[Block], parts: list[OpKind]) -> OpKind:
    """The kind of a PrimFunc that neither reduces nor contracts."""
    moved = [b for b, part in zip(blocks, parts, strict=True) if part is OpKind.INJECTIVE]
    # An operand that is broadcast before it is computed with (batch norm's parameters) leaves
    # the op elementwise; an op that only moves elements, or moves them by other maps, is not.
    broadcasts = all(
        classify_load(b, load) <= IndexMap.BROADCAST and classify_load(b, load) != IndexMap.PREFIX
        for b in moved
        for load in b.loads
    )
    if not moved or (broadcasts and len(moved) < len(blocks)):
        return OpKind.ELEMENTWISE
    return OpKind.INJECTIVE


def _domain(block: Block) -> list[Any]:
    """The extents that a block writes, unit ones left out."""
    extents = [iv.dom.extent for iv in block.iter_vars if not is_reduction(iv)]
    return [e for e in extents if static_product([e]) != 1]


def _domain_size(block: Block) -> str:
    extents = _domain(block)
    size = static_product(extents)
    return str(size) if size is not None else " * ".join(sorted(str(e) for e in extents))


def _pattern(kind: OpKind, blocks: list[Block]) -> FusePattern:
    if kind in (OpKind.BARRIER, OpKind.COMPOSITE):
        return FusePattern.OPAQUE
    if kind is OpKind.CONTRACTION and len(blocks) == 1 and _walks_an_operand_once(blocks[0]):
        return FusePattern.REDUCTION
    if kind in (OpKind.ROW_NORM, OpKind.CONTRACTION):
        return FusePattern.ANCHOR
    if kind is OpKind.REDUCTION:
        pure = len(blocks) == 1 and is_pure_reduction(blocks[0])
        return FusePattern.REDUCTION if pure else FusePattern.ANCHOR
    if kind is OpKind.ELEMENTWISE:
        return min(_block_pattern(block) for block in blocks)
    return max(_block_pattern(block) for block in blocks)


def _walks_an_operand_once(block: Block) -> bool:
    """Whether some operand is indexed by all axes: a matrix times a vector, a bare reduction."""
    spatial = {hash(v) for v in block.spatial_vars}
    operands = [ld for ld in loads_of(block.values[0]) if not _is_accumulator(block, ld)]
    return is_pure_reduction(block) and any(spatial <= _hashes([ld]) for ld in operands)


def _is_accumulator(block: Block, load: Any) -> bool:
    return bool(load.source.same_as(block.stores[0].buffer))


def _block_pattern(block: Block) -> FusePattern:
    """Judged as TVM does it, on the indices as they are written."""
    maps = {classify_load(block, load, simplify=False) for load in block.loads}
    if IndexMap.STATIC in maps:
        return FusePattern.INJECTIVE
    # A block that reads some operand at its own place is elementwise in that operand, whatever
    # it broadcasts besides; the leading part of a larger operand counts as its own place.
    own_place = maps & {IndexMap.IDENTITY, IndexMap.PREFIX}
    return FusePattern.ELEMENTWISE if own_place or not maps else FusePattern.BROADCAST


def _is_reshape(func: tirx.PrimFunc, blocks: list[Block], params: list[Any]) -> bool:
    """Whether the function copies one tensor to another shape, element for element."""
    if len(blocks) != 1 or len(params) != 2 or len(blocks[0].loads) != 1:
        return False
    if not isinstance(blocks[0].values[0], tvm.ir.TensorLoad):
        return False
    source, result = (param.ty for param in params)
    if str(source.dtype) != str(result.dtype):
        return False
    count = [_count(ty.shape) for ty in (source, result)]
    if not tvm.sym.Analyzer().can_prove_equal(*count):
        return False
    return bool(relax.analysis.has_reshape_pattern(func))


def _keeps_axes(block: Block) -> bool:
    kept = (IndexMap.IDENTITY, IndexMap.BROADCAST)
    return all(classify_load(block, load) in kept for load in block.loads)


def _count(shape: Any) -> Any:
    total: Any = tirx.IntImm("int64", 1)
    for extent in shape:
        total = total * extent
    return total
