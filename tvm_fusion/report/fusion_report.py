"""The report of one build, and what can be asked of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import ReportError, one_line
from .chrome_trace import to_chrome_trace
from .data import ReportData
from .detail import GroupDetail, group_detail
from .diff import ReportDiff, diff
from .graph_text import to_graphviz, to_mermaid
from .html import render_html
from .json_format import from_json, to_json
from .model_explorer import to_model_explorer
from .query import why


@dataclass(frozen=True)
class FusionReport(ReportData):
    """What one build decided, why, and what it saves.

    :func:`tvm_fusion.explain` makes one. Its fields are described by :class:`ReportData`.
    """

    def why(self, first: str, second: str) -> str:
        """Why two ops are, or are not, in one kernel.

        Parameters
        ----------
        first, second : str
            Names of ops, or of PrimFuncs that ops call.

        Returns
        -------
        str
            Sentences, a paragraph for each pair. Two that pass no tensor to each other are answered
            with the decisions on the way between them.

        Raises
        ------
        ReportError
            A name is not there.
        """
        return why(self, first, second)

    def group(self, name: str) -> GroupDetail:
        """The group of that name, or the one with that kernel or op, with its TVMScript and CUDA.

        Raises
        ------
        ReportError
            There is none.
        """
        return group_detail(self, name)

    def diff(self, other: FusionReport) -> ReportDiff:
        """What changed from this report to another one, most useful of the same model."""
        return diff(self, other)

    def to_html(self) -> str:
        """One page that needs no network: the graph before and after, search, details on click."""
        return render_html(self)

    def to_graphviz(self) -> str:
        """The graph in the DOT language, for small graphs."""
        return to_graphviz(self)

    def to_mermaid(self) -> str:
        """The graph as a Mermaid flowchart, for small graphs."""
        return to_mermaid(self)

    def to_model_explorer(self) -> dict[str, Any]:
        """The graph as Model Explorer opens it from a JSON file."""
        return to_model_explorer(self)

    def to_chrome_trace(self) -> dict[str, Any]:
        """The phases of the build in Chrome's trace format."""
        return to_chrome_trace(self)

    def to_json(self) -> dict[str, Any]:
        """The report as plain data with its layout's version, ready for ``json.dump``."""
        return to_json(self)

    @staticmethod
    def from_json(data: Any) -> FusionReport:
        """The report that :meth:`to_json` wrote.

        Parameters
        ----------
        data : dict
            What ``json.load`` returned.

        Raises
        ------
        ReportError
            The data is no report, or one of another version.
        """
        return from_json(data, FusionReport)

    def save(self, path: str | Path) -> None:
        """Write the report as JSON."""
        text = json.dumps(self.to_json(), indent=1) + "\n"
        Path(path).write_text(text, encoding="utf-8")

    @staticmethod
    def load(path: str | Path) -> FusionReport:
        """Read a report that :meth:`save` wrote.

        Raises
        ------
        ReportError
            The file is no report, or one of another version.
        """
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise ReportError(f"{path} is no JSON ({one_line(error)}): give a report") from error
        return FusionReport.from_json(data)
