"""The graph of a report as Graphviz or Mermaid text: ops in boxes for groups, edges by verdict."""

from __future__ import annotations

from ..errors import ReportError
from .data import FUSED_KERNEL, ReportData

#: A drawing of more ops is not readable, and Mermaid refuses more than 500 edges.
MOST_OPS = 200


def to_graphviz(report: ReportData) -> str:
    """The graph in the DOT language.

    Parameters
    ----------
    report : ReportData
        Of a build of at most :data:`MOST_OPS` ops.

    Raises
    ------
    ReportError
        The graph is too large to be read.
    """
    number, labels = _numbers(report), _labels(report)
    lines = [
        "digraph fusion {",
        '  node [shape=box, style="rounded,filled", fillcolor=white, fontname=Helvetica];',
        "  edge [fontname=Helvetica, fontsize=10];",
    ]
    for i, group in enumerate(report.groups):
        ops = [f"    n{number[op]} [label={_quoted(labels[op])}];" for op in group.ops]
        if group.kind == FUSED_KERNEL:
            title = _quoted(group.name)
            lines.append(f"  subgraph cluster_{i} {{ label={title}; style=filled; color=lightblue;")
            lines += [*ops, "  }"]
        else:
            lines += ops
    for edge in report.edges:
        ends = f"n{number[edge.producer]} -> n{number[edge.consumer]}"
        style = ""
        if edge.reason.verdict == "refused":
            dashes = "dotted" if edge.reason.is_free else "dashed"
            style = f" [style={dashes}, label={_quoted(edge.reason.code)}]"
        lines.append(f"  {ends}{style};")
    return "\n".join([*lines, "}"]) + "\n"


def to_mermaid(report: ReportData) -> str:
    """The graph as a Mermaid flowchart.

    Parameters
    ----------
    report : ReportData
        Of a build of at most :data:`MOST_OPS` ops.

    Raises
    ------
    ReportError
        The graph is too large to be read.
    """
    number, labels = _numbers(report), _labels(report)
    lines = ["flowchart TD"]
    for i, group in enumerate(report.groups):
        ops = [f'    n{number[op]}["{_entities(labels[op])}"]' for op in group.ops]
        if group.kind == FUSED_KERNEL:
            lines += [f'  subgraph g{i}["{_entities(group.name)}"]', *ops, "  end"]
        else:
            lines += ops
    for edge in report.edges:
        arrow = "-->"
        if edge.reason.verdict == "refused":
            arrow = f"-. {_entities(edge.reason.code)} .->"
        lines.append(f"  n{number[edge.producer]} {arrow} n{number[edge.consumer]}")
    return "\n".join(lines) + "\n"


def _numbers(report: ReportData) -> dict[str, int]:
    if len(report.ops) > MOST_OPS:
        raise ReportError(
            f"a drawing of {len(report.ops)} ops is not readable, up to {MOST_OPS} are drawn: use "
            f"the HTML page or Model Explorer"
        )
    return {op.name: i for i, op in enumerate(report.ops)}


def _labels(report: ReportData) -> dict[str, str]:
    return {
        op.name: op.name if op.function == op.name else f"{op.name}: {op.function}"
        for op in report.ops
    }


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return f'"{escaped}"'


def _entities(text: str) -> str:
    """Text for a Mermaid label: what it gives a meaning to is written as entities."""
    return "".join(c if c.isalnum() or c in " _.,:()" else f"#{ord(c)};" for c in text)
