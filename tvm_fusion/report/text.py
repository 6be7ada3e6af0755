"""The summary as tables for a terminal, plain where there is none."""

from __future__ import annotations

from collections import Counter
from typing import IO

from rich import box
from rich.console import Console
from rich.table import Table

from ..analysis.traffic import Totals
from .data import EdgeSummary, GroupSummary, Summary

#: Columns where the output is no terminal.
_PLAIN_WIDTH = 100

#: Longest name of a group that is printed in full.
_LONGEST_NAME = 42


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
    table.add_column("shared B", justify="right")
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
            str(group.shared_bytes),
            _megabytes(group.bytes_read + group.bytes_written),
        )
    return table


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
