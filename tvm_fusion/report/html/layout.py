"""Layered drawings of directed graphs: edges run downwards, and no two boxes overlap.

The steps are those of Sugiyama: layers by longest path, an order within each layer by barycentres,
coordinates by least squares. All of them are deterministic. Long edges of one producer share a
trunk, and very long ones a lane beside the graph, so that the work grows with boxes and edges and
not with the length of the edges.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

#: Least distance of boxes and of bends of edges in a layer.
_BOX_GAP = 18
_BEND_GAP = 12

#: Distance of layers; it grows with the way that edges go sideways.
_LAYER_GAP = (26, 64)

#: Edges over more layers than this run in a lane beside the graph.
_LONGEST_SPAN = 32
_LANE_GAP = 10

#: How far from the middle a vertex may be that is alone in its layer.
_DRIFT = 80

_MARGIN = 16
_PORT_GAP = 16
_ORDER_SWEEPS = 4
_PLACE_SWEEPS = 6

Point = tuple[int, int]


@dataclass(frozen=True)
class Box:
    """Where a node is drawn.

    Parameters
    ----------
    x, y : int
        Its upper left corner.
    width, height : int
        Its size.
    layer : int
        Its layer, from above.
    """

    x: int
    y: int
    width: int
    height: int
    layer: int


@dataclass(frozen=True)
class Layout:
    """A drawing.

    Parameters
    ----------
    boxes : tuple of Box
        One for each node.
    routes : tuple of tuple of Point
        For each edge its way from the producer to the consumer. Two points that follow each other
        are joined by a line where they are above each other, else by a curve.
    width, height : int
        Size of the whole.
    """

    boxes: tuple[Box, ...]
    routes: tuple[tuple[Point, ...], ...]
    width: int
    height: int


def lay_out(sizes: Sequence[tuple[int, int]], edges: Sequence[tuple[int, int]]) -> Layout:
    """Lay out a graph.

    Parameters
    ----------
    sizes : sequence of (int, int)
        Width and height of each node.
    edges : sequence of (int, int)
        Producer and consumer as positions in ``sizes``. Where they form a cycle, some edge of it
        runs upwards.

    Returns
    -------
    Layout
    """
    if not sizes:
        return Layout((), tuple(() for _ in edges), 2 * _MARGIN, 2 * _MARGIN)
    drawing = _Drawing(sizes, edges)
    drawing.order_layers()
    drawing.place_across()
    drawing.place_down()
    return drawing.result()


def _topological(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The nodes in an order of dependence; a cycle is entered at its first node."""
    after: list[list[int]] = [[] for _ in range(count)]
    waiting = [0] * count
    for tail, head in edges:
        if tail != head:
            after[tail].append(head)
            waiting[head] += 1
    ready = [node for node in range(count) if not waiting[node]]
    unseen = iter(range(count))
    done = [False] * count
    order: list[int] = []
    while len(order) < count:
        node = heapq.heappop(ready) if ready else next(n for n in unseen if not done[n])
        if done[node]:
            continue
        done[node] = True
        order.append(node)
        for head in after[node]:
            waiting[head] -= 1
            if not waiting[head]:
                heapq.heappush(ready, head)
    return order


def _layers(count: int, edges: Sequence[tuple[int, int]], order: Sequence[int]) -> list[int]:
    """The layer of each node: as high as it can be, then lower where that shortens edges."""
    before: list[list[int]] = [[] for _ in range(count)]
    after: list[list[int]] = [[] for _ in range(count)]
    for tail, head in edges:
        before[head].append(tail)
        after[tail].append(head)
    layer = [0] * count
    for node in order:
        layer[node] = max((layer[tail] + 1 for tail in before[node]), default=0)
    for node in reversed(order):
        if after[node] and len(before[node]) <= len(after[node]):
            layer[node] = min(layer[head] for head in after[node]) - 1
    return layer


class _Drawing:
    """A graph while it is laid out.

    Vertices are the nodes and, behind them, the bends of edges that pass through layers.
    """

    def __init__(self, sizes: Sequence[tuple[int, int]], edges: Sequence[tuple[int, int]]) -> None:
        self.sizes = list(sizes)
        self.edges = edges
        self.count = len(sizes)
        order = _topological(self.count, edges)
        rank = {node: i for i, node in enumerate(order)}
        self.downwards = [(a, b) if rank[a] <= rank[b] else (b, a) for a, b in edges]
        unique = sorted({edge for edge in self.downwards if edge[0] != edge[1]})
        self.layer = _layers(self.count, unique, order)
        self.above: dict[int, list[int]] = defaultdict(list)
        self.below: dict[int, list[int]] = defaultdict(list)
        self.bends: dict[tuple[int, int], int] = {}
        self.lanes: dict[int, int] = {}
        for tail, head in unique:
            if self.layer[head] - self.layer[tail] <= _LONGEST_SPAN:
                self._thread(tail, head)
        self._take_lanes([e for e in unique if self.layer[e[1]] - self.layer[e[0]] > _LONGEST_SPAN])
        self.rows = self._first_order(order)
        self.x = [0.0] * len(self.sizes)
        self.tops: list[int] = []
        self.bottoms: list[int] = []

    def _thread(self, tail: int, head: int) -> None:
        """Lead an edge through the layers between; edges of one producer share their bends."""
        at = tail
        for layer in range(self.layer[tail] + 1, self.layer[head]):
            bend = self.bends.get((tail, layer))
            if bend is None:
                bend = self.bends[tail, layer] = len(self.sizes)
                self.sizes.append((0, 0))
                self.layer.append(layer)
                self._link(at, bend)
            at = bend
        self._link(at, head)

    def _link(self, upper: int, lower: int) -> None:
        self.below[upper].append(lower)
        self.above[lower].append(upper)

    def _take_lanes(self, long: Sequence[tuple[int, int]]) -> None:
        """Give each producer of very long edges a lane that nobody else has at these layers."""
        ends: dict[int, int] = {}
        for tail, head in long:
            ends[tail] = max(ends.get(tail, 0), self.layer[head])
        busy: list[tuple[int, int]] = []
        lanes = 0
        for tail in sorted(ends, key=lambda node: (self.layer[node], node)):
            if busy and busy[0][0] < self.layer[tail]:
                lane = heapq.heappop(busy)[1]
            else:
                lane, lanes = lanes, lanes + 1
            self.lanes[tail] = lane
            heapq.heappush(busy, (ends[tail], lane))

    def _first_order(self, order: Sequence[int]) -> list[list[int]]:
        """Vertices by layer, each next to those that it was reached from."""
        rows: list[list[int]] = [[] for _ in range(max(self.layer) + 1)]
        seen: set[int] = set()
        stack = [node for node in reversed(order) if not self.above[node]]
        while stack:
            vertex = stack.pop()
            if vertex not in seen:
                seen.add(vertex)
                rows[self.layer[vertex]].append(vertex)
                stack.extend(reversed(self.below[vertex]))
        return rows

    # -- order within layers ----------------------------------------------------------------

    def order_layers(self) -> None:
        """Sort every layer by the mean position of the neighbours above, then below, and again."""
        position = {vertex: float(i) for row in self.rows for i, vertex in enumerate(row)}
        for sweep in range(_ORDER_SWEEPS):
            down = sweep % 2 == 0
            near = self.above if down else self.below
            for row in self.rows if down else reversed(self.rows):
                mean = {
                    v: sum(position[n] for n in near[v]) / len(near[v]) if near[v] else position[v]
                    for v in row
                }
                row.sort(key=lambda v: (mean[v], position[v]))
                position.update((v, float(i)) for i, v in enumerate(row))

    # -- coordinates ------------------------------------------------------------------------

    def place_across(self) -> None:
        """Place every vertex as near to its neighbours as the order and the gaps allow."""
        for row in self.rows:
            offsets = self._offsets(row)
            for vertex, offset in zip(row, offsets, strict=True):
                self.x[vertex] = offset - offsets[-1] / 2
        for sweep in range(_PLACE_SWEEPS):
            down = sweep % 2 == 0
            near = self.above if down else self.below
            for row in self.rows if down else reversed(self.rows):
                self._settle(row, near)
        both = {v: [*self.above[v], *self.below[v]] for row in self.rows for v in row}
        for near in (both, self.above):
            for row in self.rows:
                self._settle(row, near)
        self._recentre()

    def _recentre(self) -> None:
        """Move all below a vertex that is alone in its layer, so that long graphs do not drift."""
        shift = 0.0
        for row in self.rows:
            if len(row) == 1 and abs(self.x[row[0]] + shift) > _DRIFT:
                shift = -self.x[row[0]]
            for vertex in row:
                self.x[vertex] += shift

    def _offsets(self, row: Sequence[int]) -> list[float]:
        """Where the centres of a layer lie when they are as close as can be."""
        offsets = [0.0]
        for left, right in pairwise(row):
            gap = _BOX_GAP if left < self.count and right < self.count else _BEND_GAP
            offsets.append(offsets[-1] + (self.sizes[left][0] + self.sizes[right][0]) / 2 + gap)
        return offsets

    def _settle(self, row: Sequence[int], near: dict[int, list[int]]) -> None:
        """Minimise the weighted squared distance to neighbours; pools of touching vertices."""
        offsets = self._offsets(row)
        pools: list[tuple[float, float, int]] = []
        for vertex, offset in zip(row, offsets, strict=True):
            weights = [self._weight(vertex, other) for other in near[vertex]]
            weight = sum(weights) or 0.1
            wish = self.x[vertex]
            if weights:
                pairs = zip(weights, near[vertex], strict=True)
                wish = sum(w * self.x[other] for w, other in pairs) / weight
            pool = (weight * (wish - offset), weight, 1)
            while pools and pools[-1][0] / pools[-1][1] >= pool[0] / pool[1]:
                last = pools.pop()
                pool = (last[0] + pool[0], last[1] + pool[1], last[2] + pool[2])
            pools.append(pool)
        at = 0
        for total, weight, size in pools:
            for i in range(at, at + size):
                self.x[row[i]] = offsets[i] + total / weight
            at += size

    def _weight(self, a: int, b: int) -> float:
        """How much it matters that two neighbours are above each other: little at a loose end."""
        if any(len(self.above[v]) + len(self.below[v]) == 1 for v in (a, b)):
            return 0.2
        bends = (a >= self.count) + (b >= self.count)
        return (1.0, 2.0, 8.0)[bends]

    def place_down(self) -> None:
        """Place the layers below each other."""
        least, most = _LAYER_GAP
        y = _MARGIN
        for row in self.rows:
            self.tops.append(y)
            y += max((self.sizes[v][1] for v in row), default=0)
            self.bottoms.append(y)
            ways = (abs(self.x[v] - self.x[n]) for v in row for n in self.below[v])
            y += min(most, least + int(max(ways, default=0.0) / 8))

    # -- result -----------------------------------------------------------------------------

    def result(self) -> Layout:
        """The boxes and routes in whole pixels, all of them to the right of and below zero."""
        left = min(self.x[v] - self.sizes[v][0] / 2 for row in self.rows for v in row)
        self.x = [x - left + _MARGIN for x in self.x]
        right = max(self.x[v] + self.sizes[v][0] / 2 for row in self.rows for v in row)
        boxes = tuple(self._box(node) for node in range(self.count))
        ports = self._ports(boxes)
        routes = tuple(
            self._route(edge, flat, boxes, ports, right)
            for edge, flat in zip(self.edges, self.downwards, strict=True)
        )
        lanes = (max(self.lanes.values()) + 1) * _LANE_GAP if self.lanes else 0
        return Layout(boxes, routes, round(right) + lanes + _MARGIN, self.bottoms[-1] + _MARGIN)

    def _box(self, node: int) -> Box:
        width, height = self.sizes[node]
        layer = self.layer[node]
        y = self.tops[layer] + (self.bottoms[layer] - self.tops[layer] - height) // 2
        return Box(round(self.x[node] - width / 2), y, width, height, layer)

    def _ports(self, boxes: Sequence[Box]) -> dict[tuple[int, int, bool], int]:
        """Where an edge leaves (True) or enters a box, side by side in the order of their ways."""
        leaving: dict[int, dict[int, float]] = defaultdict(dict)
        entering: dict[int, dict[int, float]] = defaultdict(dict)
        for tail, head in self.downwards:
            if tail == head:
                continue
            if self._is_long(tail, head):
                leaving[tail][-1] = entering[head][tail] = float("inf")
                continue
            leaving[tail][self._first_bend(tail, head)] = self.x[self._first_bend(tail, head)]
            entering[head][tail] = self.x[self._last_bend(tail, head)]
        ports: dict[tuple[int, int, bool], int] = {}
        for ways, leaves in ((leaving, True), (entering, False)):
            for node, toward in ways.items():
                box = boxes[node]
                step = min(_PORT_GAP, (box.width - 16) / max(1, len(toward) - 1))
                for i, key in enumerate(sorted(toward, key=lambda k: (toward[k], k))):
                    shift = (i - (len(toward) - 1) / 2) * step
                    ports[node, key, leaves] = round(box.x + box.width / 2 + shift)
        return ports

    def _is_long(self, tail: int, head: int) -> bool:
        return self.layer[head] - self.layer[tail] > _LONGEST_SPAN

    def _first_bend(self, tail: int, head: int) -> int:
        return (
            self.bends.get((tail, self.layer[tail] + 1), head) if self._bends(tail, head) else head
        )

    def _last_bend(self, tail: int, head: int) -> int:
        return self.bends[tail, self.layer[head] - 1] if self._bends(tail, head) else tail

    def _bends(self, tail: int, head: int) -> bool:
        return self.layer[head] - self.layer[tail] > 1

    def _route(
        self,
        edge: tuple[int, int],
        flat: tuple[int, int],
        boxes: Sequence[Box],
        ports: dict[tuple[int, int, bool], int],
        right: float,
    ) -> tuple[Point, ...]:
        tail, head = flat
        if tail == head:
            return ()
        long = self._is_long(tail, head)
        start = ports[tail, -1 if long else self._first_bend(tail, head), True]
        end = ports[head, tail, False]
        upper, lower = self.layer[tail], self.layer[head]
        points = [(start, boxes[tail].y + boxes[tail].height), (start, self.bottoms[upper])]
        if long:
            lane = round(right) + (self.lanes[tail] + 1) * _LANE_GAP
            points += [(lane, self.tops[upper + 1]), (lane, self.bottoms[lower - 1])]
        else:
            for layer in range(upper + 1, lower):
                x = round(self.x[self.bends[tail, layer]])
                points += [(x, self.tops[layer]), (x, self.bottoms[layer])]
        points += [(end, self.tops[lower]), (end, boxes[head].y)]
        return tuple(points if edge == flat else reversed(points))
