"""Where the intermediates of a kernel live: by its plan, or as TVM's schedule placed them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx

from ..analysis import DataflowGraph
from ..analysis.nests import Nest, Nests, concatenate
from ..planning.kernel_plan import KernelPlan
from .data import StorageEntry, TensorEntry


def planned_storage(
    graph: DataflowGraph, ops: Sequence[int], plan: KernelPlan
) -> tuple[StorageEntry, ...]:
    """Where each result lives in a kernel that we planned.

    Parameters
    ----------
    graph : DataflowGraph
        The ops of the block.
    ops : sequence of int
        Those of the group.
    plan : KernelPlan
        Its plan.

    Returns
    -------
    tuple of StorageEntry
        One for each loop nest, in order. Empty where the plan's nests are not those of the ops.
    """
    parts = [nests for op in sorted(ops) if (nests := graph.ops[op].nests) is not None]
    group = concatenate(parts, graph.results_read_outside(ops))
    copies = len(plan.staged)
    if len(plan.placement) != copies + len(group.nests):
        return ()
    inputs = [group.inputs[i] if i < len(group.inputs) else "input" for i in plan.staged]
    entries = [
        StorageEntry(_tensor(group, tensor, f"copy of {_name(tensor)}"), place)
        for tensor, place in zip(inputs, plan.placement, strict=False)
    ]
    several = {graph.ops[op].name for op in ops if graph.ops[op].num_outputs > 1}
    for nest, place in zip(group.nests, plan.placement[copies:], strict=True):
        tensor = nest.stores[0].tensor
        entries.append(StorageEntry(_tensor(group, tensor, _label(nest, tensor, several)), place))
    return tuple(entries)


def _name(tensor: Any) -> str:
    return str(tensor[1]) if isinstance(tensor, tuple) else str(tensor)


def _label(nest: Nest, tensor: Any, several: Collection[str]) -> str:
    """The op that makes a tensor, and which of its results or loop nests it is."""
    if tensor[0] == "tmp":
        return f"{_name(tensor)} ({nest.name})"
    return f"{_name(tensor)}[{tensor[2]}]" if _name(tensor) in several else _name(tensor)


def _tensor(group: Nests, key: Any, name: str) -> TensorEntry:
    found = group.tensors.get(key)
    if found is None:
        return TensorEntry(name, (), "", None)
    nbytes: int | None = found.element_bytes
    for extent in found.shape:
        nbytes = None if extent.symbols or nbytes is None else nbytes * extent.number
    return TensorEntry(name, tuple(map(str, found.shape)), found.dtype, nbytes)


def scheduled_storage(func: tirx.PrimFunc) -> tuple[StorageEntry, ...]:
    """Buffers that a scheduled PrimFunc allocates, with their storage scopes.

    Parameters
    ----------
    func : tirx.PrimFunc
        A scheduled PrimFunc.
    """
    blocks: list[Any] = []
    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, blocks.append))
    entries = []
    for buffer in (buffer for block in blocks for buffer in block.alloc_buffers):
        # Its shape is that of the whole tensor: lowering cuts it to what a thread block holds.
        tensor = TensorEntry(str(buffer.name), (), str(buffer.dtype), None)
        entries.append(StorageEntry(tensor, str(buffer.scope())))
    return tuple(entries)
