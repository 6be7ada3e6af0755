"""The phases of a build in Chrome's trace format, for chrome://tracing, Perfetto and speedscope."""

from __future__ import annotations

from typing import Any

from .data import ReportData


def to_chrome_trace(report: ReportData) -> dict[str, Any]:
    """The phases as complete events, which may lie within each other.

    Source: "Trace Event Format", section "Complete Events"; times are in microseconds.

    Parameters
    ----------
    report : ReportData
        Of a build.
    """
    events = [
        {
            "name": span.name,
            "cat": "tvm_fusion",
            "ph": "X",
            "ts": round(span.start * 1e6, 1),
            "dur": round(span.seconds * 1e6, 1),
            "pid": 1,
            "tid": 1,
        }
        for span in sorted(report.spans, key=lambda span: (span.start, -span.seconds))
    ]
    return {"traceEvents": events, "displayTimeUnit": "ms"}
