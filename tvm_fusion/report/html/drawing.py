"""The graphs before and after fusion as boxes and paths, ready for the template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...policy.reasons import DUPLICATED, FUSED, REFUSED
from ..data import FUSED_KERNEL, VIEW, EdgeEntry, GroupEntry, OpEntry, ReportData
from ..words import amount, kind_words, shortened, wrapped
from .layout import Box, Point, lay_out
from .reasons import FREE, Classes, style_of

#: Colours of groups that the style sheet has.
GROUP_COLOURS = 12

#: Pixels that a character takes, by the class of its line.
_CHARACTER = {"name": 7.2, "more": 5.6}
_LINE_HEIGHT = {"name": 16, "more": 14}
_PADDING = (12, 7)
_LONGEST_OP = 24
_LONGEST_GROUP = 30
_OPS_WIDTH = 38
_OPS_LINES = 3
_BLOCK_TITLE = 28
_BLOCK_GAP = 20


@dataclass(frozen=True)
class Line:
    """A line of text in a box: its class and where its baseline is in the box."""

    text: str
    css: str
    y: int


@dataclass(frozen=True)
class Node:
    """An op or a group as it is drawn.

    Parameters
    ----------
    index : int
        Its position in the report.
    css : str
        Classes.
    label : str
        What a screen reader says.
    box : Box
        Where it is.
    lines : tuple of Line
        What is written in it.
    """

    index: int
    css: str
    label: str
    box: Box
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Link:
    """What is drawn from one node to another.

    Parameters
    ----------
    edges : tuple of int
        The edges that it stands for, by position in the report; the one that it looks like first.
    ends : tuple of (int, int)
        The nodes, by position in the report.
    css : str
        Classes.
    path : str
        The way as SVG path data.
    """

    edges: tuple[int, ...]
    ends: tuple[int, int]
    css: str
    path: str


@dataclass(frozen=True)
class Title:
    """The name of a Relax function above its part of the drawing."""

    text: str
    y: int


@dataclass(frozen=True)
class Drawing:
    """One of the two graphs."""

    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    titles: tuple[Title, ...]
    width: int
    height: int


@dataclass(frozen=True)
class _Sketch:
    """A node before it has a place."""

    index: int
    block: str
    css: str
    label: str
    texts: tuple[tuple[str, str], ...]

    @property
    def size(self) -> tuple[int, int]:
        across, down = _PADDING
        width = max(len(text) * _CHARACTER[css] for css, text in self.texts)
        height = sum(_LINE_HEIGHT[css] for css, _ in self.texts)
        return max(64, 2 * round(width / 2) + 2 * across), height + 2 * down

    def lines(self) -> tuple[Line, ...]:
        y = _PADDING[1]
        found = []
        for css, text in self.texts:
            y += _LINE_HEIGHT[css]
            found.append(Line(text, css, y - 4))
        return tuple(found)


def draw_before(report: ReportData, colours: Mapping[str, str], reasons: Classes) -> Drawing:
    """The graph of ops with all its edges.

    Parameters
    ----------
    report : ReportData
        What to draw.
    colours : mapping of str to str
        For each group the class of its colour.
    reasons : mapping
        The classes of edges.
    """
    groups = {group.name: group for group in report.groups}
    index = {op.name: i for i, op in enumerate(report.ops)}
    sketches = [_op(i, op, groups[op.group], colours[op.group]) for i, op in enumerate(report.ops)]
    links = [
        Link(
            (i,),
            (index[edge.producer], index[edge.consumer]),
            f"{_edge_classes(edge, reasons)} {colours[report.ops[index[edge.consumer]].group]}",
            "",
        )
        for i, edge in enumerate(report.edges)
    ]
    return _draw(sketches, links)


def draw_after(report: ReportData, colours: Mapping[str, str], reasons: Classes) -> Drawing:
    """The graph of groups; one edge stands for all that pass from one to the other.

    Parameters
    ----------
    report, colours, reasons
        As for :func:`draw_before`.
    """
    ops = {op.name: op for op in report.ops}
    index = {group.name: i for i, group in enumerate(report.groups)}
    sketches = [
        _group(i, group, ops[group.ops[0]], colours[group.name])
        for i, group in enumerate(report.groups)
    ]
    between: dict[tuple[int, int], list[int]] = {}
    for i, edge in enumerate(report.edges):
        ends = index[ops[edge.producer].group], index[ops[edge.consumer].group]
        if ends[0] != ends[1]:
            between.setdefault(ends, []).append(i)
    links = []
    for ends, edges in between.items():
        edges.sort(key=lambda i: (report.edges[i].reason.is_free, i))
        css = [_edge_classes(report.edges[i], reasons).split() for i in edges]
        names = dict.fromkeys([css[0][0], *(reason for _, reason in css)])
        links.append(Link(tuple(edges), ends, " ".join(names), ""))
    return _draw(sketches, links)


def group_colours(report: ReportData) -> dict[str, str]:
    """For each group the class of its colour; only fused ones have one of their own."""
    fused = [group.name for group in report.groups if group.kind == FUSED_KERNEL]
    colours = {name: f"c{i % GROUP_COLOURS}" for i, name in enumerate(fused)}
    return {group.name: colours.get(group.name, group.kind) for group in report.groups}


def _edge_classes(edge: EdgeEntry, reasons: Classes) -> str:
    """The style of an edge, then the class of its reason."""
    style = style_of(edge.reason)
    return f"{style} {reasons[style, edge.reason.code]}"


def _op(index: int, op: OpEntry, group: GroupEntry, colour: str) -> _Sketch:
    kind = kind_words(op.kind)
    if group.kind == VIEW:
        label = f"{op.name}, view"
        return _Sketch(index, op.block, colour, label, (("more", shortened(op.name, _LONGEST_OP)),))
    name = ("name", shortened(op.name, _LONGEST_OP))
    cost = f"{kind} \N{MIDDLE DOT} {amount(op.before.bytes)}" if op.before.bytes else kind
    label = f"{op.name}, {kind}, in {group.name}"
    return _Sketch(index, op.block, colour, label, (name, ("more", cost)))


def _group(index: int, group: GroupEntry, first: OpEntry, colour: str) -> _Sketch:
    if group.kind == VIEW:
        texts: list[tuple[str, str]] = [("more", shortened(group.name, _LONGEST_OP))]
        return _Sketch(index, first.block, colour, f"{group.name}, view", tuple(texts))
    texts = [("name", shortened(group.name, _LONGEST_GROUP))]
    if group.kind != FUSED_KERNEL:
        about = kind_words(first.kind)
        if group.after.bytes:
            about += f" \N{MIDDLE DOT} {amount(group.after.bytes)}"
        label = f"{group.name}, {about}"
        return _Sketch(index, first.block, colour, label, (*texts, ("more", about)))
    texts += [("more", line) for line in wrapped(group.ops, _OPS_WIDTH, _OPS_LINES)]
    moved = f"{amount(group.before.bytes)} \N{RIGHTWARDS ARROW} {amount(group.after.bytes)}"
    texts.append(("more", f"{len(group.ops)} ops \N{MIDDLE DOT} {moved}"))
    label = f"{group.name}, {len(group.ops)} ops, {amount(group.bytes_saved)} saved"
    return _Sketch(index, first.block, colour, label, tuple(texts))


# -- placing ------------------------------------------------------------------------------------


def _draw(sketches: Sequence[_Sketch], links: Sequence[Link]) -> Drawing:
    """Lay out each Relax function, one below the other."""
    by_block: dict[str, list[int]] = {}
    for i, sketch in enumerate(sketches):
        by_block.setdefault(sketch.block, []).append(i)
    nodes: list[Node] = []
    drawn: list[Link] = []
    titles: list[Title] = []
    width = y = 0
    for block, members in by_block.items():
        if len(by_block) > 1:
            titles.append(Title(block, y + _BLOCK_TITLE - 6))
            y += _BLOCK_TITLE
        local = {member: i for i, member in enumerate(members)}
        inside = [link for link in links if link.ends[0] in local]
        layout = lay_out(
            [sketches[i].size for i in members],
            [(local[link.ends[0]], local[link.ends[1]]) for link in inside],
        )
        for member, box in zip(members, layout.boxes, strict=True):
            sketch = sketches[member]
            moved = Box(box.x, box.y + y, box.width, box.height, box.layer)
            nodes.append(Node(sketch.index, sketch.css, sketch.label, moved, sketch.lines()))
        for link, route in zip(inside, layout.routes, strict=True):
            path = _path([(px, py + y) for px, py in route], link.css.split()[0] == FREE)
            drawn.append(Link(link.edges, link.ends, link.css, path))
        width = max(width, layout.width)
        y += layout.height + _BLOCK_GAP
    drawn.sort(key=lambda link: (_DRAWN_LAST.index(link.css.split()[0]), link.edges))
    return Drawing(tuple(nodes), tuple(drawn), tuple(titles), width, max(0, y - _BLOCK_GAP))


#: What is drawn later lies on top.
_DRAWN_LAST = (FREE, FUSED, DUPLICATED, REFUSED)


def _path(route: Sequence[Point], is_plain: bool) -> str:
    """SVG path data of a route, with an arrowhead unless it is to be plain."""
    if not route:
        return ""
    (x, y), rest = route[0], route[1:]
    parts = [f"M{x} {y}"]
    for to_x, to_y in rest:
        if to_x == x:
            if to_y != y:
                parts.append(f"V{to_y}")
        else:
            middle = (y + to_y) // 2
            parts.append(f"C{x} {middle} {to_x} {middle} {to_x} {to_y}")
        x, y = to_x, to_y
    if not is_plain:
        back = y - 5 if y > route[0][1] else y + 5
        parts.append(f"M{x} {y}L{x - 4} {back}M{x} {y}L{x + 4} {back}")
    return "".join(parts)
