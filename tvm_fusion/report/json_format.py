"""The JSON of a report: one layout with a version, written and read by the same converter."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from cattrs import BaseValidationError, transform_error
from cattrs.preconf.json import make_converter

from ..errors import ReportError
from .consistency import first_contradiction
from .data import ReportData

#: Version of the JSON layout.
SCHEMA = 3

_CONVERTER = make_converter(forbid_extra_keys=True)

_Report = TypeVar("_Report", bound=ReportData)


def to_json(report: ReportData) -> dict[str, Any]:
    """A report as plain data, ready for ``json.dump``."""
    return {"schema": SCHEMA, **_CONVERTER.unstructure(report)}


def from_json(data: Any, cls: type[_Report]) -> _Report:
    """The report that :func:`to_json` made.

    Parameters
    ----------
    data : dict
        What ``json.load`` returned.
    cls : type
        The class of the report.

    Raises
    ------
    ReportError
        The data is no report, one of another version, or one that contradicts itself.
    """
    if not isinstance(data, dict) or "schema" not in data:
        raise ReportError("this JSON is no fusion report: write one with tvm-fusion explain --json")
    if data["schema"] != SCHEMA or not isinstance(data["schema"], int):
        raise ReportError(
            f"the report has schema {data['schema']!r}, this version of tvm_fusion reads {SCHEMA}: "
            f"make it anew with tvm-fusion explain --json"
        )
    try:
        rest = {key: value for key, value in data.items() if key != "schema"}
        report = _CONVERTER.structure(rest, cls)
    except BaseValidationError as error:
        raise _damaged(transform_error(error)[0]) from None
    # The converter makes numbers of texts and the like; what it writes would be another file then.
    if json.loads(json.dumps(to_json(report))) != data:
        raise _damaged("a value is of another type")
    wrong = first_contradiction(report)
    if wrong:
        raise _damaged(wrong)
    return report


def _damaged(why: str) -> ReportError:
    return ReportError(
        f"the report is damaged ({why}): make it anew with tvm-fusion explain --json"
    )
