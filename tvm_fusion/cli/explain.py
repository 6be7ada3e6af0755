"""``tvm-fusion explain``: why, and how much: the report as text, page, graph and JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

from ..errors import ReportError
from ..report import FusionReport, make_console, render
from .compile import fuse_and_explain, make_directories, progress, write_text
from .options import Questions, Settings


def explain_model(model: str, settings: Settings, questions: Questions) -> int:
    """Run the command.

    Parameters
    ----------
    model : str
        The argument MODEL, or a JSON file that a report was written to.
    settings : Settings
        The options.
    questions : Questions
        What is asked.

    Returns
    -------
    int
        The exit status, 0.

    Raises
    ------
    TVMFusionError
        The model cannot be imported or compiled, or the report does not hold what is asked for.
    """
    old = FusionReport.load(questions.diff) if questions.diff is not None else None
    make_directories(None, settings.json, *questions.files)
    if model.endswith(".json"):
        if replace(settings, json=None, traceback=False) != Settings():
            raise ReportError(
                f"{model} is a report, and nothing is built: leave out the options of a build"
            )
        report = FusionReport.load(model)
    else:
        with progress() as say:
            _, _, report = fuse_and_explain(model, settings, say)
    _write(report, settings, questions)
    answers = [report.why(*pair) for pair in questions.why]
    answers += [_everything(report, name) for name in questions.group]
    answers += [str(old.diff(report))] if old is not None else []
    if answers:
        print("\n\n".join(answers))
    else:
        render(report, make_console(sys.stdout))
    return 0


def _everything(report: FusionReport, name: str) -> str:
    group = report.group(name)
    return "\n\n".join(part for part in (str(group), group.tvmscript, group.cuda) if part)


def _write(report: FusionReport, settings: Settings, questions: Questions) -> None:
    if settings.json is not None:
        report.save(settings.json)
    if questions.html is not None:
        write_text(questions.html, report.to_html())
    if questions.graphviz is not None:
        write_text(questions.graphviz, report.to_graphviz())
    if questions.mermaid is not None:
        write_text(questions.mermaid, report.to_mermaid())
    if questions.model_explorer is not None:
        write_text(questions.model_explorer, json.dumps(report.to_model_explorer(), indent=1))
    if questions.chrome_trace is not None:
        write_text(questions.chrome_trace, json.dumps(report.to_chrome_trace(), indent=1))
