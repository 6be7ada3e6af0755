"""What the figures of a report rest on, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from .data import Header, OpEntry


def assumptions(header: Header, ops: Sequence[OpEntry]) -> tuple[str, ...]:
    """The sentences that hold for one report.

    Parameters
    ----------
    header : Header
        What was built.
    ops : sequence of OpEntry
        The ops.
    """
    found = [
        "Bytes are modelled, not measured: a kernel moves every tensor that it touches once, and "
        "never more than it accesses.",
        "Before fusion every op has a kernel of its own; composite PrimFuncs count as their "
        "blocks, and reshapes as views.",
        f"Figures of the GPU are those of {header.device.source}.",
        "The policy compares times by a roofline model; the latency of memory and the time of a "
        "launch in it are estimates.",
    ]
    if header.compiler:
        found.append(f"Registers, spills and shared memory are those that {header.compiler} says.")
    else:
        found.append("Registers are estimates of the plans: no CUDA compiler was asked.")
    if header.assume:
        given = ", ".join(f"{name} = {value}" for name, value in sorted(header.assume.items()))
        found.append(
            f"Bytes are counted with {given}; plans and the roofline model take every symbolic "
            f"extent as 128."
        )
    if any(op.kind == "CONTRACTION" for op in ops):
        found.append(
            "Contractions are TVM's kernels: they may read an operand more often than is counted."
        )
    return tuple(found)
