"""The rows of the page's tables and charts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...codegen.figures import NO_FIGURES, KernelFigures
from ..costs import sum_of
from ..data import VIEW, GroupEntry, Header, Moved, ReportData
from ..words import amount, change, duration


@dataclass(frozen=True)
class KernelRow:
    """All calls of one kernel.

    Parameters
    ----------
    name : str
        The kernel, or the group where it has none.
    group : int
        Position of the first group that calls it.
    colour : str
        Class of that group's colour.
    calls, ops : int
        How often it is called, and ops of one call.
    before, after : Moved
        What all calls cost.
    figures : KernelFigures
        What it takes of a multiprocessor.
    """

    name: str
    group: int
    colour: str
    calls: int
    ops: int
    before: Moved
    after: Moved
    figures: KernelFigures

    @property
    def saved(self) -> int:
        """Bytes that fusing saves."""
        return self.before.bytes - self.after.bytes


@dataclass(frozen=True)
class Bar:
    """A labelled bar of a chart.

    Parameters
    ----------
    label, value : str
        What stands before and behind it.
    share : float
        Its length in percent of the longest.
    heavy : float
        The part of it that is of heavy ops, in percent of the longest.
    depth : int
        How far its label is indented.
    """

    label: str
    value: str
    share: float
    heavy: float = 0.0
    depth: int = 0


@dataclass(frozen=True)
class Chart:
    """What a call costs, by the way that the module was built."""

    title: str
    before: str
    after: str
    change: str
    bars: tuple[Bar, ...]


#: How the page calls the ways to build.
_WAYS = {"unfused": "Unfused", "stock": "Stock TVM", "ours": "Fused here"}


def kernel_rows(report: ReportData, colours: dict[str, str]) -> list[KernelRow]:
    """One row for each kernel, in the order of their first call; views have none."""
    figures = {kernel.name: kernel.figures for kernel in report.kernels}
    calls: dict[str, list[tuple[int, GroupEntry]]] = {}
    for i, group in enumerate(report.groups):
        if group.kind != VIEW:
            calls.setdefault(group.kernel or group.name, []).append((i, group))
    return [
        KernelRow(
            name=name,
            group=groups[0][0],
            colour=colours[groups[0][1].name],
            calls=len(groups),
            ops=len(groups[0][1].ops),
            before=sum_of(group.before for _, group in groups),
            after=sum_of(group.after for _, group in groups),
            figures=figures.get(name, NO_FIGURES),
        )
        for name, groups in calls.items()
    ]


def charts(header: Header) -> list[Chart]:
    """Kernels and bytes of one call, before and after."""
    known = {way: totals for way, totals in header.totals.items() if totals is not None}
    kernels = {way: (totals.kernels, totals.kernels_heavy) for way, totals in known.items()}
    moved = {way: (totals.bytes, totals.bytes_heavy) for way, totals in known.items()}
    return [
        _chart("Kernels a call", kernels, lambda count: f"{count:,}"),
        _chart("Global memory traffic", moved, amount),
    ]


def phases(header: Header) -> list[Bar]:
    """Time by phase."""
    longest = max(header.seconds.values(), default=0.0) or 1.0
    return [
        Bar(
            label=name.rsplit("/", 1)[-1],
            value=duration(seconds),
            share=100 * seconds / longest,
            depth=name.count("/"),
        )
        for name, seconds in header.seconds.items()
    ]


def limits(header: Header) -> list[tuple[str, str]]:
    """The limits that are set."""
    return [(name, str(value)) for name, value in header.limits.items() if value is not None]


def _chart(title: str, counts: dict[str, tuple[int, int]], words: Callable[[int], str]) -> Chart:
    most = max((count for count, _ in counts.values()), default=0) or 1
    before, after = (counts.get(way, (0, 0))[0] for way in ("unfused", "ours"))
    bars = tuple(
        Bar(_WAYS.get(way, way), words(count), 100 * count / most, 100 * heavy / most)
        for way, (count, heavy) in counts.items()
    )
    return Chart(title, words(before), words(after), change(before, after), bars)
