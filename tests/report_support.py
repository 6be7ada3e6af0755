"""Reports that are made from others: with many ops, or with other names."""

from __future__ import annotations

import json
from dataclasses import replace

from tvm_fusion.report import FusionReport, ReportData

#: A name that would do harm where it is not escaped.
HOSTILE = "</script><img src=x onerror=alert(1)>&\"'`{{ 7 * 7 }}"


def renamed(report: FusionReport, old: str, new: str) -> FusionReport:
    """The report with another name for an op, group or function."""
    text = json.dumps(report.to_json()).replace(json.dumps(old), json.dumps(new))
    return FusionReport.from_json(json.loads(text))


def repeated(report: ReportData, copies: int) -> ReportData:
    """A report of several copies of a model, each of which reads the one before.

    Parameters
    ----------
    report : ReportData
        The model.
    copies : int
        How many.

    Returns
    -------
    ReportData
    """
    ops, edges, siblings, groups = [], [], [], []
    names = {op.name for op in report.ops}
    refused = next(edge for edge in report.edges if edge.reason.is_refused)
    for i in range(copies):

        def of_copy(name: str, i: int = i) -> str:
            return f"{name}.{i}" if name in names else name

        ops += [replace(op, name=of_copy(op.name), group=f"{op.group}.{i}") for op in report.ops]
        groups += [
            replace(group, name=f"{group.name}.{i}", ops=tuple(map(of_copy, group.ops)))
            for group in report.groups
        ]
        edges += [
            replace(edge, producer=of_copy(edge.producer), consumer=of_copy(edge.consumer))
            for edge in report.edges
        ]
        siblings += [
            replace(pair, first=of_copy(pair.first), second=of_copy(pair.second))
            for pair in report.siblings
        ]
        if i:
            last, first = f"{report.ops[-1].name}.{i - 1}", f"{report.ops[0].name}.{i}"
            edges.append(replace(refused, producer=last, consumer=first))
    return replace(
        report,
        ops=tuple(ops),
        edges=tuple(edges),
        siblings=tuple(siblings),
        groups=tuple(groups),
    )
