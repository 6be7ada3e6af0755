"""The page of a report: what is in it, and that it needs nothing else."""

from __future__ import annotations

import json
import re
from colorsys import hls_to_rgb
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markupsafe import escape
from report_support import HOSTILE, renamed, repeated

from tvm_fusion import workloads
from tvm_fusion.codegen import KernelFigures
from tvm_fusion.report import FusionReport, explain, html
from tvm_fusion.report.html import render_html
from tvm_fusion.report.html.drawing import GROUP_COLOURS
from tvm_fusion.report.words import amount, change, shortened, wrapped
from tvm_fusion.trace import FeedbackStep

TEMPLATES = Path(html.__file__).parent / "templates"


@pytest.fixture(scope="module")
def report() -> FusionReport:
    return explain(workloads.small("gpt2_block"), "nvidia/nvidia-a100")


@pytest.fixture(scope="module")
def page(report: FusionReport) -> str:
    return render_html(report)


class Elements(HTMLParser):
    """All elements of a page with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def values(self, attribute: str) -> list[str]:
        return [attrs[attribute] or "" for _, attrs in self.found if attribute in attrs]


# -- what is in the page ------------------------------------------------------------------------


def test_page_needs_no_other_file(page):
    elements = Elements(page)
    assert not {"link", "img", "iframe", "object", "embed"} & {tag for tag, _ in elements.found}
    assert not elements.values("src")
    assert all(href.startswith("#") for href in elements.values("href"))
    assert "http://" not in page
    assert "https://" not in page
    assert "@import" not in page
    assert "url(" not in page


def test_page_shows_every_op_edge_and_group(report, page):
    elements = Elements(page)
    assert sorted(map(int, elements.values("data-op"))) == list(range(len(report.ops)))
    assert sorted(map(int, elements.values("data-group"))) == list(range(len(report.groups)))
    assert sorted(map(int, elements.values("data-edge"))) == list(range(len(report.edges)))
    group = {op.name: op.group for op in report.ops}
    passing = [i for i, e in enumerate(report.edges) if group[e.producer] != group[e.consumer]]
    shown = [int(i) for edges in elements.values("data-edges") for i in edges.split()]
    assert sorted(shown) == passing


def test_edges_are_drawn_by_verdict(report, page):
    classes = {
        int(attrs["data-edge"]): attrs["class"].split()
        for _, attrs in Elements(page).found
        if "data-edge" in attrs
    }
    for i, edge in enumerate(report.edges):
        style = "free" if edge.reason.is_free else edge.reason.verdict
        assert style in classes[i]


def test_every_pair_is_in_a_list_too(report, page):
    chosen = Elements(page).values("data-select")
    for i, edge in enumerate(report.edges):
        assert f"edge:{i}" in chosen
        assert f"{edge.producer} &rarr; {edge.consumer}" in page
    assert report.siblings
    for i, pair in enumerate(report.siblings):
        assert f"sibling:{i}" in chosen
        assert f"{pair.first}, {pair.second}" in page


def test_page_names_all_settings_kernels_and_assumptions(report, page):
    for kernel in report.kernels:
        assert kernel.name in page
    for name, value in report.header.limits.items():
        assert value is None or name in page
    for sentence in report.assumptions:
        assert str(escape(sentence)) in page
    for version in report.header.versions.values():
        assert version in page


def test_calls_of_a_kernel_are_one_row(page):
    row = next(row for row in page.split("<tr>") if 'data-value="layer_norm"' in row)
    assert '<td class="number">2</td>' in row


def test_rendering_is_deterministic(report, page):
    again = FusionReport.from_json(json.loads(json.dumps(report.to_json())))
    assert render_html(again) == page


@pytest.mark.parametrize("what", ["gelu", "fused_matmul_add", "main"])
def test_hostile_names_are_text(report, what):
    page = render_html(renamed(report, what, HOSTILE))
    elements = Elements(page)
    assert "img" not in {tag for tag, _ in elements.found}
    assert not elements.values("onerror")
    assert page.count("</script>") == 2
    assert "{{ 7 * 7 }}" in page


def test_feedback_and_notes_are_told(report):
    before = KernelFigures(255, 120, 0, 256, 0.125, "registers", "nvcc 13.0")
    after = replace(before, registers=96, spill_bytes=0)
    step = FeedbackStep("fused_one", "spills", "it spills", "split", before, (after, after))
    page = render_html(replace(report, feedback=(step,), notes=("stock < failed",)))
    (told,) = re.findall("from 255 registers, 120 bytes spilled(.*?)</span>", page)
    assert told == " to 96 registers, 0 bytes spilled and 96 registers, 0 bytes spilled"
    assert "stock &lt; failed" in page


def test_text_of_groups_is_legible():
    """Contrast of the ink with each fill, in both themes."""
    graph, base = ((TEMPLATES / name).read_text() for name in ("graph.css", "base.css"))
    fills = re.findall(r"--hue-fill: (\d+)% (\d+)%", graph)
    inks = re.findall(r"--ink: #(\w{6})", base)
    hues = re.findall(r"--hue: (\d+)", graph)
    assert len(hues) == GROUP_COLOURS
    for (saturation, lightness), ink in zip(fills, inks, strict=True):
        text = [int(ink[i : i + 2], 16) / 255 for i in (0, 2, 4)]
        for hue in hues:
            fill = hls_to_rgb(int(hue) / 360, int(lightness) / 100, int(saturation) / 100)
            faded = [0.82 * t + 0.18 * f for t, f in zip(text, fill, strict=True)]
            dark, light = sorted((luminance(faded), luminance(fill)))
            assert (light + 0.05) / (dark + 0.05) >= 4.5


def luminance(rgb) -> float:
    """By the definition of the Web Content Accessibility Guidelines."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_report_without_ops(report):
    empty = replace(report, ops=(), edges=(), siblings=(), groups=(), kernels=())
    assert "0 ops, 0 edges" in render_html(empty)


def test_functions_are_drawn_below_each_other(report):
    ops = (*report.ops[:-1], replace(report.ops[-1], block="tail"))
    edges = tuple(edge for edge in report.edges if edge.consumer != report.ops[-1].name)
    page = render_html(replace(report, ops=ops, edges=edges))
    titles = re.findall(r'<text class="block-title" x="16" y="(\d+)">(\w+)</text>', page)
    assert [name for _, name in titles[:2]] == ["main", "tail"]
    assert int(titles[0][0]) < int(titles[1][0])


# -- words --------------------------------------------------------------------------------------


def test_words():
    assert [amount(n) for n in (0, 999, 1000, 5_517_312, 25_222_144)] == [
        "0 B",
        "999 B",
        "1.00 kB",
        "5.52 MB",
        "25.2 MB",
    ]
    assert amount(-2048) == "−2.05 kB"
    assert change(24, 10) == "−58 %"
    assert change(0, 10) == ""
    assert len(shortened("a" * 50, 20)) == 20
    assert wrapped(("one", "two", "three"), 9, 2) == ["one · two", "three"]
    assert wrapped(("one", "two", "three", "four"), 5, 2) == ["one", "two", "… and 2 more"]


def test_long_graphs_stay_narrow(report):
    page = render_html(repeated(report, 20))
    widths = [int(width) for width in re.findall(r'viewBox="0 0 (\d+)', page)]
    assert max(widths) < 1000
