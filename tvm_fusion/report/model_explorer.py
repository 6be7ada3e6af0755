"""The graph of a report as JSON for Model Explorer (github.com/google-ai-edge/model-explorer).

Ops are nodes; the namespace is the Relax function and the group, so that a group opens and closes.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from .data import FUSED_KERNEL, EdgeEntry, GroupEntry, KernelEntry, OpEntry, ReportData
from .words import amount, taken, type_of


def to_model_explorer(report: ReportData) -> dict[str, Any]:
    """The graph in the layout that Model Explorer opens from a JSON file.

    Parameters
    ----------
    report : ReportData
        Of a build.
    """
    groups = {group.name: group for group in report.groups}
    incoming: dict[str, list[EdgeEntry]] = defaultdict(list)
    for edge in report.edges:
        incoming[edge.consumer].append(edge)
    outside = dict.fromkeys((op.block, name) for op in report.ops for name in op.inputs)
    nodes: list[dict[str, Any]] = [
        {"id": _outside(block, name), "label": name, "namespace": f"{block} inputs"}
        for block, name in outside
    ]
    nodes += [_node(op, groups[op.group], incoming[op.name]) for op in report.ops]
    kernels = {kernel.name: kernel for kernel in report.kernels}
    attributes = {
        _namespace(op, groups[op.group]): _group_attributes(groups[op.group], kernels)
        for op in report.ops
        if groups[op.group].kind == FUSED_KERNEL
    }
    graph = {"id": "fusion", "nodes": nodes, "groupNodeAttributes": attributes}
    return {"label": f"fusion by {report.header.policy}", "graphs": [graph]}


def _namespace(op: OpEntry, group: GroupEntry) -> str:
    """Levels are divided by a slash, which names of PrimFuncs do not hold."""
    return f"{op.block}/{group.name}" if group.kind == FUSED_KERNEL else op.block


def _outside(block: str, name: str) -> str:
    """The id of a tensor from outside of a function; no op has a space in its name."""
    return f"{block} input {name}"


def _node(op: OpEntry, group: GroupEntry, incoming: list[EdgeEntry]) -> dict[str, Any]:
    sources = [edge.producer for edge in incoming]
    sources += [_outside(op.block, name) for name in op.inputs]
    attributes = {
        "function": op.function,
        "kind": op.kind,
        "group": group.name,
        "bytes before fusion": amount(op.before.bytes),
    }
    for edge in incoming:
        tensors = ", ".join(map(type_of, edge.tensors))
        verdict = f"{edge.reason.verdict} ({edge.reason.code}): {edge.reason.message}"
        attributes[f"from {edge.producer}"] = f"{tensors} {verdict}".strip()
    return {
        "id": op.name,
        "label": op.name,
        "namespace": _namespace(op, group),
        "attrs": _pairs(attributes),
        "incomingEdges": [
            {"sourceNodeId": source, "sourceNodeOutputId": "0", "targetNodeInputId": str(i)}
            for i, source in enumerate(sources)
        ],
    }


def _group_attributes(group: GroupEntry, kernels: dict[str, KernelEntry]) -> dict[str, str]:
    kernel = kernels.get(group.kernel)
    return {
        "bytes saved": amount(group.bytes_saved),
        "rule": kernel.rule if kernel is not None else "-",
        "takes": taken(kernel.figures) if kernel is not None else "-",
    }


def _pairs(attributes: dict[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in attributes.items()]
