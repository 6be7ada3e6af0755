"""The summary as tables for a terminal, plain where there is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import IO

from rich import box
from rich.console import Console
from rich.table import Table

from ..analysis.traffic import Totals
from ..codegen.figures import NO_FIGURES
from ..trace import FeedbackStep, KernelRecord
from .data import EdgeSummary, GroupSummary, Summary

#: Columns where the output is no terminal.
_PLAIN_WIDTH = 100

#: Longest name of a group that is printed in full.
_LONGEST_NAME = 36


def make_console(file: IO[str] | None = None, stderr: bool = False) -> Console:
    """A console that is as wide as the terminal, or 100 columns where there is none."""
    console = Console(file=file, stderr=stderr, highlight=False)
    if not console.is_terminal:
        console = Console(file=file, stderr=stderr, highlight=False, width=_PLAIN_WIDTH)
    return console


def render(summary: Summary, console: Console) -> None:
    """Print a summary: costs, groups, and why the other pairs were not fused.

    Parameters
    ----------
    summary : Summary
        What to print.
    console : rich.console.Console
        Where to; :func:`make_console` makes one.
    """
    console.print(_costs(summary))
    if summary.groups:
        console.print(_groups(summary.groups))
    else:
        console.print("No groups were formed.")
    console.print(_figures(summary.kernels))
    for step in summary.feedback:
        console.print(_step(step), markup=False)
    refused = [edge for edge in summary.edges if not edge.fused]
    if refused:
        console.print(_refusals(refused))
    for note in summary.notes:
        console.print(f"note: {note}", markup=False)


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)


def _costs(summary: Summary) -> Table:
    table = _table(f"One call on {summary.target}, policy {summary.policy}")
    table.add_column("")
    for column in ("kernels", "of them heavy", "MB", "of them heavy"):
        table.add_column(column, justify="right")
    for way, totals in summary.totals.items():
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


def _groups(groups: tuple[GroupSummary, ...]) -> Table:
    table = _table(f"Groups: {len(groups)}")
    table.add_column("group", no_wrap=True)
    table.add_column("calls", justify="right")
    table.add_column("ops", justify="right")
    table.add_column("kinds", ratio=1)
    table.add_column("MB", justify="right")
    calls = Counter(group.name for group in groups)
    first = {group.name: group for group in reversed(groups)}
    for name in dict.fromkeys(group.name for group in groups):
        group = first[name]
        table.add_row(
            _shortened(name),
            str(calls[name]),
            str(len(group.ops)),
            _counted(group.kinds),
            _megabytes(group.bytes_read + group.bytes_written),
        )
    return table


def _figures(kernels: Mapping[str, KernelRecord]) -> Table:
    """What each kernel takes, in the order of the module."""
    compilers = {k.figures.compiler for k in kernels.values() if k.figures and k.figures.compiler}
    table = _table(f"Kernels: {len(kernels)}, figures by {', '.join(compilers) or 'estimate'}")
    table.add_column("kernel", no_wrap=True)
    for column in ("threads", "registers", "spill B", "shared B", "occupancy"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("limited by", overflow="fold", min_width=10)
    for name, kernel in kernels.items():
        figures = kernel.figures or NO_FIGURES
        estimated = "" if figures.is_compiled or figures.registers is None else "~"
        table.add_row(
            _shortened(name),
            _known(figures.threads),
            estimated + _known(figures.registers),
            _known(figures.spill_bytes),
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


def _known(number: int | None) -> str:
    return "-" if number is None else str(number)


def _refusals(edges: list[EdgeSummary]) -> Table:
    table = _table(f"Pairs not fused: {len(edges)}")
    table.add_column("reason", no_wrap=True)
    table.add_column("pairs", justify="right")
    table.add_column("for example", overflow="fold")
    counts = Counter(edge.reason for edge in edges)
    first = {edge.reason: edge for edge in reversed(edges)}
    for reason, count in counts.most_common():
        edge = first[reason]
        functions = f"({edge.producer_function} -> {edge.consumer_function})"
        example = f"{edge.producer} -> {edge.consumer} {functions}: {edge.message}"
        table.add_row(reason, str(count), example)
    return table


def _counted(kinds: tuple[str, ...]) -> str:
    """``("A", "B", "A")`` as "2 A, B"."""
    return ", ".join(
        f"{n} {kind.lower()}" if n > 1 else kind.lower() for kind, n in Counter(kinds).items()
    )


def _shortened(name: str) -> str:
    if len(name) <= _LONGEST_NAME:
        return name
    half = (_LONGEST_NAME - 3) // 2
    return f"{name[:half]}...{name[-half:]}"


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.2f}"
