"""The figures of a candidate group that the limits speak of."""

from __future__ import annotations

from collections.abc import Sequence

from ..analysis import DataflowGraph
from ..errors import PolicyError
from ..limits import Limits
from .reasons import OutOfFusions, Reason, TooDeep, TooManyOps

#: How the shared memory of a reduction is reckoned.
SHARED_MEMORY_MODELS = ("thread_block", "whole_output")


def check_model(model: str) -> str:
    """Return ``model`` if it is one.

    Raises
    ------
    PolicyError
        It is none.
    """
    if model not in SHARED_MEMORY_MODELS:
        known = ", ".join(SHARED_MEMORY_MODELS)
        raise PolicyError(f"unknown shared_memory_model {model!r}: choose one of {known}")
    return model


def shared_bytes(graph: DataflowGraph, op: int, model: str) -> int:
    """Shared memory that a reduction needs, in bytes.

    ``thread_block``: what one thread block stages, one partial result a thread.
    ``whole_output``: the whole output of the reduction, as the classic rule has it.
    """
    if model == "whole_output":
        return graph.ops[op].output_bytes
    return graph.ops[op].shared_bytes


def kernel_args(graph: DataflowGraph, members: Sequence[int]) -> int:
    """Tensors that one kernel made of ``members`` reads from and writes to global memory."""
    inside = set(members)
    read: set[object] = set()
    written = 0
    for op in members:
        read.update(graph.ops[op].external_inputs)
        read.update(p for p in graph.producers(op) if p not in inside)
        escapes = op in graph.outputs or any(c not in inside for c in graph.consumers(op))
        if escapes or not graph.consumers(op):
            written += graph.ops[op].num_outputs - graph.ops[op].dead_outputs
    return len(read) + written


def count_refusal(limits: Limits, ops: int, fusions: int) -> Reason | None:
    """Which limit forbids a group of that many ops, made by that many fusions in all.

    Parameters
    ----------
    limits : Limits
        The budgets.
    ops : int
        Ops that the group would have.
    fusions : int
        Fusions that the policy would have made in this block, those of the group included.
    """
    if limits.max_depth is not None and ops > limits.max_depth:
        return TooDeep(ops, limits.max_depth)
    if limits.max_group_size is not None and ops > limits.max_group_size:
        return TooManyOps(ops, limits.max_group_size)
    if limits.max_fusions is not None and fusions > limits.max_fusions:
        return OutOfFusions(fusions, limits.max_fusions)
    return None
