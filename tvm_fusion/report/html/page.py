"""Makes the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from .. import words
from ..data import ReportData
from .drawing import draw_after, draw_before, group_colours
from .reasons import Classes, reason_rows
from .tables import charts, kernel_rows, limits, phases

#: Style sheets and scripts, in the order in which they stand in the page.
_STYLES = ("base.css", "graph.css", "tables.css")
_SCRIPTS = ("store.js", "graph.js", "details.js", "page.js")

#: Fields of a report that the script of the page shows on demand.
_SHOWN = ("ops", "edges", "siblings", "groups", "kernels")


def render_html(report: ReportData) -> str:
    """A report as one page that needs nothing else, not even a network.

    Parameters
    ----------
    report : ReportData
        What to show.

    Returns
    -------
    str
        HTML.
    """
    colours, rows = group_colours(report), reason_rows(report)
    classes = {(row.style, row.reason.code): row.css for row in rows}
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            report=report,
            header=report.header,
            charts=charts(report.header),
            limits=limits(report.header),
            phases=phases(report.header),
            drawings={
                "before": draw_before(report, colours, classes),
                "after": draw_after(report, colours, classes),
            },
            reasons=rows,
            kernels=kernel_rows(report, colours),
            data=_data(report, colours, classes),
            styles=[_text(name) for name in _STYLES],
            scripts=[_text(name) for name in _SCRIPTS],
        )
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("tvm_fusion.report.html", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    for filter_ in (words.amount, words.binary, words.duration, words.change):
        environment.filters[filter_.__name__] = filter_
    return environment


def _text(name: str) -> Markup:
    """A style sheet or script as it is: they are ours, and hold nothing of a report."""
    loader = _environment().loader
    assert loader is not None
    return Markup(loader.get_source(_environment(), name)[0])


def _data(report: ReportData, colours: Mapping[str, str], classes: Classes) -> Markup:
    """What the script shows on demand as JSON that is safe inside of a script element."""
    data: dict[str, Any] = {name: [asdict(e) for e in getattr(report, name)] for name in _SHOWN}
    data["colours"] = [colours[group.name] for group in report.groups]
    data["reasons"] = {f"{style} {code}": css for (style, code), css in classes.items()}
    return htmlsafe_json_dumps(data, default=str, separators=(",", ":"))
