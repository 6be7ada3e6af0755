"""Inputs that all threads of a block read, loaded to shared memory once."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from tvm import tirx

from ...analysis.blocks import element_bytes
from ...planning.launch import VECTOR_BYTES
from .number import Number
from .source import loop, sequence
from .values import Values


def load_for_block(values: Values, tensor: Hashable, array: Any) -> Any:
    """The statement by which all threads of a block together load an input.

    Parameters
    ----------
    values : Values
        Of the kernel.
    tensor : tensor
        The input; all rows of the block read the same elements of it.
    array : Buffer
        In shared memory, as large as the plan says.
    """
    source, rows = values.source, values.rows
    plan, layout = source.plan, source.layout
    buffer = source.buffers[tensor]
    classes = layout.tensor_local(tensor)
    vector = source.elements.vector(classes)
    vectors = layout.size(classes).number // vector
    turns = -(-vectors // plan.threads_per_block)
    turn: Any = tirx.Var("turn", source.index_type) if turns > 1 else source.const(0)
    thread = rows.linear_thread()
    group = rows.simplify(turn * plan.threads_per_block + thread)
    digits = source.digits.tensors[tensor]

    def place(at: Any) -> list[Any]:
        parts = [(at, vector), (thread, plan.threads_per_block), (turn, turns)]
        point = rows.decode(classes, Number.chain(parts, source.index_type))
        return rows.axes(digits, {**rows.values, **point})

    width = min(vector, VECTOR_BYTES // element_bytes(buffer.dtype))
    lie_next = bool(classes) and source.digits.tensor_classes(tensor)[-1] == classes[-1]
    if str(buffer.dtype) == "bool" or not lie_next:
        width = 1
    fragment = values.allocate(f"{buffer.name}_part", vector, str(buffer.dtype))
    statements = []
    for start in range(0, vector, width):
        lane: Any = tirx.Var("lane", source.index_type)
        at = lane + start if width > 1 else source.const(start)
        load = tirx.BufferStore(fragment, tirx.BufferLoad(buffer, place(at)), [at])
        statements.append(loop(width, load, lane, tirx.ForKind.VECTORIZED))
    for at in range(vector):
        slot = values.block_slot(classes, group * vector + at)
        index = source.const(at)
        statements.append(tirx.BufferStore(array, tirx.BufferLoad(fragment, [index]), [slot]))
    body = sequence(statements)
    if vectors % plan.threads_per_block:
        body = tirx.IfThenElse(group < vectors, body, None)
    return loop(turns, body, turn)
