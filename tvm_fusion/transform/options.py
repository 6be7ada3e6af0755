"""Checks on options that several passes share."""

from __future__ import annotations

from ..errors import LimitsError

_FEEDBACK = ("auto", "off")


def check_feedback(feedback: str) -> None:
    """Refuse a feedback mode that does not exist.

    Raises
    ------
    LimitsError
        ``feedback`` is not ``"auto"`` or ``"off"``.
    """
    if feedback == "compiler":
        raise LimitsError(
            "feedback='compiler' needs the CUDA compiler's figures, which this version of "
            "tvm_fusion does not read yet: use 'auto' or 'off'"
        )
    if feedback not in _FEEDBACK:
        raise LimitsError(f"unknown feedback {feedback!r}: use one of {', '.join(_FEEDBACK)}")
