"""The page of a report as it answers in a browser."""

from __future__ import annotations

import shutil
import time

import pytest
from report_support import HOSTILE, renamed, repeated

from tvm_fusion import workloads
from tvm_fusion.report import FusionReport, explain
from tvm_fusion.report.html import render_html

pytestmark = pytest.mark.browser

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


@pytest.fixture(scope="module")
def report() -> FusionReport:
    return explain(workloads.small("gpt2_block"), "nvidia/nvidia-a100")


@pytest.fixture(scope="module")
def page(report: FusionReport) -> str:
    return render_html(report)


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no Chromium")
    with sync_api.sync_playwright() as playwright:
        made = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield made
        made.close()


class Opened:
    """A page in a browser, with all that went wrong in it."""

    def __init__(self, browser, path, html: str) -> None:
        path.write_text(html, encoding="utf-8")
        self.tab = browser.new_page(
            viewport={"width": 1440, "height": 900}, reduced_motion="reduce"
        )
        self.wrong: list[str] = []
        self.requests: list[str] = []
        self.tab.on("console", lambda message: self.wrong.append(message.text))
        self.tab.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.url = path.as_uri()
        started = time.perf_counter()
        self.tab.goto(self.url)
        self.tab.evaluate("() => new Promise((done) => requestAnimationFrame(done))")
        self.seconds = time.perf_counter() - started

    def click_edge(self, index: int) -> None:
        """Scroll the graph to an edge, and click where it is drawn."""
        x, y = self.tab.evaluate(
            """(index) => {
              const path = document.querySelector(`[data-edge="${index}"]`);
              const pane = path.closest(".scroll");
              const point = path.getPointAtLength(path.getTotalLength() * 0.35);
              const scale = path.getScreenCTM().a;
              pane.scrollTo(point.x * scale - 200, point.y * scale - 200);
              const at = point.matrixTransform(path.getScreenCTM());
              return [at.x, at.y];
            }""",
            index,
        )
        self.tab.mouse.click(x, y)

    def details(self) -> str:
        return self.tab.inner_text("#details")

    def focused(self, attribute: str) -> str | None:
        return self.tab.evaluate("(a) => document.activeElement.getAttribute(a)", attribute)

    def close(self) -> None:
        self.tab.close()
        assert self.wrong == []
        assert self.requests == [self.url]


@pytest.fixture
def opened(browser, tmp_path, page):
    made = Opened(browser, tmp_path / "report.html", page)
    yield made
    made.close()


def test_click_on_a_refused_edge_says_why(report, opened):
    for side in ("before", "after"):
        assert opened.tab.is_visible(f'[data-side="{side}"] .node >> nth=0')
    index = next(i for i, edge in enumerate(report.edges) if edge.reason.is_refused)
    opened.click_edge(index)
    reason = report.edges[index].reason
    assert reason.message in opened.details()
    assert reason.would_fuse_if in opened.details()
    assert opened.tab.locator(".edge.selected").count() == 2  # on both sides


def test_click_on_an_op_shows_it_on_both_sides(report, opened):
    index = next(i for i, op in enumerate(report.ops) if op.name == "gelu")
    opened.tab.click(f'[data-op="{index}"]')
    group = next(g for g, entry in enumerate(report.groups) if "gelu" in entry.ops)
    assert "Where intermediates live" in opened.details()
    chosen = opened.tab.locator(".node.selected")
    assert chosen.count() == 2
    assert chosen.nth(1).get_attribute("data-group") == str(group)
    assert chosen.nth(1).bounding_box()["y"] < 900
    opened.tab.click("#details summary >> text=CUDA")
    assert "__global__" in opened.tab.inner_text("#details pre")


def test_keys_reach_everything(report, opened):
    tab = opened.tab
    tab.locator('.zoom [data-zoom="fit"]').focus()
    tab.keyboard.press("Tab")
    assert opened.focused("data-op") == "0"
    tab.keyboard.press("ArrowDown")
    below = int(opened.focused("data-op"))
    assert any(
        (edge.producer, edge.consumer) == (report.ops[0].name, report.ops[below].name)
        for edge in report.edges
    )
    tab.keyboard.press("Enter")
    assert opened.details().startswith(report.ops[below].name)
    tab.keyboard.press("e")
    assert "What is passed on" in opened.details()
    tab.keyboard.press("ArrowUp")
    assert opened.focused("data-op") == "0"
    tab.keyboard.press("Tab")
    assert opened.focused("data-group") is not None
    tab.keyboard.press("Escape")
    assert "Keys" in opened.details()


def test_search_goes_from_one_to_the_next(opened):
    tab = opened.tab
    tab.keyboard.press("/")
    tab.keyboard.type("softmax")
    tab.keyboard.press("Enter")
    assert opened.details().startswith("softmax")
    assert tab.inner_text("#search-count").startswith("1 of ")
    tab.keyboard.press("Enter")
    assert tab.inner_text("#search-count").startswith("2 of ")
    tab.fill("#search", "contraction")
    tab.keyboard.press("Enter")
    assert "What is passed on" in opened.details()


def test_legend_siblings_zoom_and_tables(report, opened):
    tab = opened.tab
    chip = tab.locator(".chip", has_text="contraction")
    chip.click()
    assert chip.get_attribute("aria-pressed") == "true"
    count = sum(edge.reason.code == "contraction" for edge in report.edges)
    assert tab.locator('#details [data-select^="edge:"]').count() == count
    faded = tab.locator('[data-side="before"] .edge.fused').first
    assert faded.evaluate("(edge) => getComputedStyle(edge).opacity") == "0.12"
    tab.check("#show-siblings")
    refused = sum(pair.reason.is_refused for pair in report.siblings)
    assert tab.locator("[data-sibling]").count() == refused
    width = tab.locator(".scroll > svg").first.bounding_box()["width"]
    tab.click('[data-zoom="in"]')
    assert tab.locator(".scroll > svg").first.bounding_box()["width"] > width
    tab.click("#kernels th >> text=Saved")
    saved = tab.locator("#kernels table").first.locator("tbody td:last-child")
    numbers = [int(cell.get_attribute("data-value")) for cell in saved.all()]
    assert numbers == sorted(numbers, reverse=True)


def test_hostile_names_do_nothing(report, browser, tmp_path):
    hostile = render_html(renamed(report, "gelu", HOSTILE))
    opened = Opened(browser, tmp_path / "report.html", hostile)
    index = next(i for i, op in enumerate(report.ops) if op.name == "gelu")
    opened.tab.click(f'[data-op="{index}"]')
    assert opened.details().startswith(HOSTILE)
    opened.close()


def test_two_thousand_ops(report, browser, tmp_path):
    large = repeated(report, 72)
    assert len(large.ops) > 2000
    opened = Opened(browser, tmp_path / "report.html", render_html(large))
    print(f"\n{len(large.ops)} ops open in {opened.seconds:.2f} s")
    assert opened.seconds < 6  # 1.5 where nothing else runs
    index = max(i for i, edge in enumerate(large.edges) if edge.reason.is_refused)
    opened.click_edge(index)
    assert large.edges[index].consumer in opened.details()
    opened.tab.keyboard.press("/")
    opened.tab.keyboard.type("gelu.40")
    opened.tab.keyboard.press("Enter")
    assert opened.details().startswith("gelu.40")
    assert opened.tab.locator('[data-side="before"] .node.selected').bounding_box()["y"] < 900
    opened.close()
