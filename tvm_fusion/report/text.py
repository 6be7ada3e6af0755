"""The report as tables for a terminal, plain where there is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import IO

from rich import box
from rich.console import Console
from rich.table import Table

from ..analysis.traffic import Totals
from ..trace import FeedbackStep
from .data import FUSED_KERNEL, GroupEntry, OpEntry, ReasonEntry, ReportData
from .words import known, shortened

#: Columns where the output is no terminal.
_PLAIN_WIDTH = 100

#: Longest names that are printed in full, in the table of groups and in that of kernels.
_LONGEST_NAME = 36
_LONGEST_BESIDE_FIGURES = 30


def make_console(file: IO[str] | None = None, stderr: bool = False) -> Console:
    """A console that is as wide as the terminal, or 100 columns where there is none."""
    console = Console(file=file, stderr=stderr, highlight=False)
    if not console.is_terminal:
        console = Console(file=file, stderr=stderr, highlight=False, width=_PLAIN_WIDTH)
    return console


def render(report: ReportData, console: Console) -> None:
    """Print a report: costs, groups, kernels, and one line for each reason not to fuse.

    Parameters
    ----------
    report : ReportData
        What to print.
    console : rich.console.Console
        Where to; :func:`make_console` makes one.
    """
    console.print(_costs(report))
    groups = [group for group in report.groups if group.kind == FUSED_KERNEL]
    if groups:
        console.print(_groups(groups, report.ops))
    else:
        console.print("No groups were formed.")
    console.print(_figures(report))
    for step in report.feedback:
        console.print(_step(step), markup=False)
    refused = [pair for pair in _pairs(report) if pair[-1].verdict == "refused"]
    if refused:
        console.print(_refusals(report, refused))
    for note in report.notes:
        console.print(f"note: {note}", markup=False)


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)


def _costs(report: ReportData) -> Table:
    table = _table(f"One call on {report.header.target}, policy {report.header.policy}")
    table.add_column("")
    for column in ("kernels", "of them heavy", "MB", "of them heavy"):
        table.add_column(column, justify="right")
    for way, totals in report.header.totals.items():
        if totals is not None:
            table.add_row(way, *_cost_row(totals))
    return table


def _cost_row(totals: Totals) -> list[str]:
    return [
        str(totals.kernels),
        str(totals.kernels_heavy),
        _megabytes(totals.bytes),
        _megabytes(totals.bytes_heavy),
    ]


def _groups(groups: list[GroupEntry], ops: Iterable[OpEntry]) -> Table:
    """One line for each distinct group."""
    table = _table(f"Groups: {len(groups)}")
    table.add_column("group", no_wrap=True)
    for column in ("calls", "ops"):
        table.add_column(column, justify="right")
    table.add_column("kinds", ratio=1)
    for column in ("MB", "MB saved"):
        table.add_column(column, justify="right")
    kinds = {op.name: op.kind for op in ops}
    calls = Counter(group.kernel or group.name for group in groups)
    seen = set()
    for group in groups:
        name = group.kernel or group.name
        if name in seen:
            continue
        seen.add(name)
        table.add_row(
            shortened(name, _LONGEST_NAME),
            str(calls[name]),
            str(len(group.ops)),
            _counted(kinds[op] for op in group.ops),
            _megabytes(group.after.bytes),
            _megabytes(group.bytes_saved),
        )
    return table


def _figures(report: ReportData) -> Table:
    """What each kernel takes, in the order of the module."""
    source = report.header.compiler or "estimate"
    table = _table(f"Kernels: {len(report.kernels)}, figures by {source}")
    table.add_column("kernel", no_wrap=True)
    for column in ("threads", "registers", "spill B", "shared B", "occupancy"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("limited by", overflow="fold", min_width=10)
    for kernel in report.kernels:
        figures = kernel.figures
        estimated = "" if figures.is_compiled or figures.registers is None else "~"
        table.add_row(
            shortened(kernel.name, _LONGEST_BESIDE_FIGURES),
            known(figures.threads),
            estimated + known(figures.registers),
            known(figures.spill_bytes),
            str(figures.shared_bytes),
            "-" if figures.occupancy is None else f"{estimated}{figures.occupancy:.0%}",
            figures.limiter or "-",
        )
    return table


def _step(step: FeedbackStep) -> str:
    after = "; ".join(
        f"{f.registers} registers, {f.spill_bytes} bytes spilled"
        + ("" if f.occupancy is None else f", occupancy {f.occupancy:.0%}")
        for f in step.after
    )
    return f"feedback: {step.group}: {step.message}: {step.action}{f' ({after})' if after else ''}"


def _pairs(report: ReportData) -> list[tuple[str, str, str, ReasonEntry]]:
    """All pairs: what stands between the two names says whether one reads the other."""
    edges = [(edge.producer, "->", edge.consumer, edge.reason) for edge in report.edges]
    return [*edges, *((pair.first, "|", pair.second, pair.reason) for pair in report.siblings)]


def _refusals(report: ReportData, pairs: list[tuple[str, str, str, ReasonEntry]]) -> Table:
    """One line for each reason: producers and consumers, readers of one tensor, an example."""
    edges = Counter(reason.code for _, sign, _, reason in pairs if sign == "->")
    siblings = Counter(reason.code for _, sign, _, reason in pairs if sign == "|")
    free = sum(reason.is_free for *_, reason in pairs)
    table = _table(
        f"Pairs not fused: {edges.total()}, of them {free} that cost nothing, and "
        f"{siblings.total()} that read one tensor"
    )
    table.add_column("reason", no_wrap=True)
    table.add_column("pairs", justify="right")
    table.add_column("readers", justify="right")
    table.add_column("for example", overflow="fold")
    functions = {op.name: op.function for op in report.ops}
    first = {reason.code: (a, sign, b, reason) for a, sign, b, reason in reversed(pairs)}
    for code, _ in (edges + siblings).most_common():
        a, sign, b, reason = first[code]
        called = f"({functions[a]} {sign} {functions[b]})"
        example = f"{a} {sign} {b} {called}: {reason.message}"
        table.add_row(code, str(edges[code]), str(siblings[code]), example)
    return table


def _counted(kinds: Iterable[str]) -> str:
    """``("A", "B", "A")`` as "2 A, B"."""
    return ", ".join(
        f"{n} {kind.lower()}" if n > 1 else kind.lower() for kind, n in Counter(kinds).items()
    )


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.2f}"
