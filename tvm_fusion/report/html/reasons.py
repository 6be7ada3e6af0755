"""The reasons of a report, counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...policy.reasons import REFUSED, VERDICTS
from ..data import EdgeEntry, ReasonEntry, ReportData, SiblingEntry

#: How an edge is drawn that is refused and costs nothing.
FREE = "free"

#: Ways to draw an edge, in the order of the legend.
STYLES = (*VERDICTS, FREE)

#: For each style and code of a reason the class of its edges.
Classes = Mapping[tuple[str, str], str]

#: Colours of refusals that the style sheet has; further reasons share the last one.
_COLOURS = 10


@dataclass(frozen=True)
class ReasonRow:
    """All pairs with one reason.

    Parameters
    ----------
    css : str
        The class of its edges.
    colour : int
        The number of its colour, where its edges are refused.
    style : str
        How its edges are drawn: one of :data:`STYLES`.
    edges, siblings : int
        Pairs.
    bytes : int
        Bytes of the tensors that its edges pass on.
    example : int
        Position of the first pair in the report, among edges if there is one, else among siblings.
    pair : str
        Its two ops.
    reason : ReasonEntry
        Its reason.
    """

    css: str
    colour: int
    style: str
    edges: int
    siblings: int
    bytes: int
    example: int
    pair: str
    reason: ReasonEntry


def style_of(reason: ReasonEntry) -> str:
    """How an edge with this reason is drawn."""
    return FREE if reason.is_free else reason.verdict


def reason_rows(report: ReportData) -> list[ReasonRow]:
    """The reasons of edges and siblings by style, the most frequent first."""
    edges = _by_reason(report.edges)
    siblings = _by_reason(report.siblings)
    keys = sorted(
        {**edges, **siblings},
        key=lambda key: (STYLES.index(key[0]), -len(edges.get(key, ())), key[1]),
    )
    refused = [key for key in keys if key[0] == REFUSED]
    rows = []
    for i, key in enumerate(keys):
        among: tuple[EdgeEntry, ...] | tuple[SiblingEntry, ...]
        among, found = (
            (report.edges, edges[key]) if key in edges else (report.siblings, siblings[key])
        )
        first = among[found[0]]
        rows.append(
            ReasonRow(
                css=f"r{i}",
                colour=min(refused.index(key), _COLOURS - 1) if key in refused else 0,
                style=key[0],
                edges=len(edges.get(key, ())),
                siblings=len(siblings.get(key, ())),
                bytes=_bytes(report.edges[e] for e in edges.get(key, ())),
                example=found[0],
                pair=_pair(first),
                reason=first.reason,
            )
        )
    return rows


def _by_reason(
    pairs: Sequence[EdgeEntry | SiblingEntry],
) -> dict[tuple[str, str], list[int]]:
    found: dict[tuple[str, str], list[int]] = {}
    for i, pair in enumerate(pairs):
        found.setdefault((style_of(pair.reason), pair.reason.code), []).append(i)
    return found


def _pair(pair: EdgeEntry | SiblingEntry) -> str:
    if isinstance(pair, EdgeEntry):
        return f"{pair.producer} \N{RIGHTWARDS ARROW} {pair.consumer}"
    return f"{pair.first}, {pair.second}"


def _bytes(edges: Iterable[EdgeEntry]) -> int:
    return sum(tensor.nbytes or 0 for edge in edges for tensor in edge.tensors)
