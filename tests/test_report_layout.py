"""Layered drawings: nothing overlaps, edges run downwards, and long graphs take no longer."""

from __future__ import annotations

import time
from itertools import combinations

import pytest

from tvm_fusion.report.html.layout import Layout, lay_out


def ladder(rungs: int) -> list[tuple[int, int]]:
    """A chain with an edge around every other node, one over half of it, and one over all."""
    chain = [(i, i + 1) for i in range(rungs - 1)]
    around = [(i, i + 2) for i in range(0, rungs - 2, 2)]
    return [*chain, *around, (0, rungs // 2), (0, rungs - 1)]


GRAPHS = {
    "nothing": (0, []),
    "apart": (5, []),
    "ladder": (120, ladder(120)),
    "tree": (127, [((i - 1) // 2, i) for i in range(1, 127)]),
    "reduction": (127, [(i, (i - 1) // 2) for i in range(1, 127)]),
    "dense": (14, list(combinations(range(14), 2))),
    "nested": (100, [*((i, i + 1) for i in range(99)), *((i, 99 - i) for i in range(49))]),
}


def laid_out(name: str) -> tuple[Layout, list[tuple[int, int]]]:
    count, edges = GRAPHS[name]
    return lay_out([(60 + 20 * (i % 5), 20 + 10 * (i % 3)) for i in range(count)], edges), edges


@pytest.mark.parametrize("name", GRAPHS)
def test_boxes_do_not_overlap(name):
    layout, _ = laid_out(name)
    for a, b in combinations(layout.boxes, 2):
        apart = (
            a.x + a.width < b.x
            or b.x + b.width < a.x
            or a.y + a.height < b.y
            or b.y + b.height < a.y
        )
        assert apart


@pytest.mark.parametrize("name", GRAPHS)
def test_edges_run_downwards_from_box_to_box(name):
    layout, edges = laid_out(name)
    for (tail, head), route in zip(edges, layout.routes, strict=True):
        upper, lower = layout.boxes[tail], layout.boxes[head]
        assert upper.layer < lower.layer
        assert route[0][1] == upper.y + upper.height
        assert route[-1][1] == lower.y
        assert upper.x <= route[0][0] <= upper.x + upper.width
        assert lower.x <= route[-1][0] <= lower.x + lower.width
        assert [y for _, y in route] == sorted(y for _, y in route)


@pytest.mark.parametrize("name", GRAPHS)
def test_all_is_within_the_drawing(name):
    layout, _ = laid_out(name)
    for box in layout.boxes:
        assert box.x >= 0
        assert box.y >= 0
        assert box.x + box.width <= layout.width
        assert box.y + box.height <= layout.height
    for x, y in (point for route in layout.routes for point in route):
        assert 0 <= x <= layout.width
        assert 0 <= y <= layout.height


def test_chain_is_straight():
    layout = lay_out([(80, 30), (60, 30), (100, 30)], [(0, 1), (1, 2)])
    assert len({box.x + box.width // 2 for box in layout.boxes}) == 1


def test_cycles_are_drawn():
    layout = lay_out([(60, 30)] * 3, [(0, 1), (1, 2), (2, 0), (1, 1)])
    assert [box.layer for box in layout.boxes] == [0, 1, 2]
    assert layout.routes[2][0][1] > layout.routes[2][-1][1]


@pytest.mark.parametrize("make", [ladder, lambda n: [(i, n - 1 - i) for i in range(n // 2)]])
def test_layout_is_near_linear(make):
    def seconds(count: int) -> float:
        chain = [(i, i + 1) for i in range(count - 1)]
        started = time.process_time()
        lay_out([(80, 36)] * count, [*chain, *make(count)])
        return time.process_time() - started

    small = min(seconds(1000) for _ in range(3))
    assert seconds(5000) < 12 * small  # 5 if linear, 25 if quadratic
