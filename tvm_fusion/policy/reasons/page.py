"""The page of the documentation on all reasons, made of their classes.

``python -m tvm_fusion.policy.reasons.page > docs/reasons.md`` writes it.
"""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from types import ModuleType

from . import budgets, chains, contractions, kernels, ops, paths, plans, together
from .base import POLICIES, REFUSED, Reason
from .example import Example

#: The chapters: a title and the module with the classes.
_CHAPTERS: tuple[tuple[str, ModuleType], ...] = (
    ("Fused or free", together),
    ("One of the two ops", ops),
    ("Limits", budgets),
    ("Chains", chains),
    ("Paths", paths),
    ("Contractions", contractions),
    ("Plans", plans),
    ("Scheduled and compiled kernels", kernels),
)

_INTRODUCTION = """\
# Reasons

Why a pair of ops is in one kernel, or is not. This page is made of the classes in
`policy/reasons`; do not edit it. This command writes it:

    python -m tvm_fusion.policy.reasons.page > docs/reasons.md

Each reason has two examples: a model of which it holds, and one of which it just does not. The
tests fuse both for an A100 (`tests/test_reasons.py`). They are TVMScript as it is before
`LegalizeOps`. A line that ends with `# for i = 1 to 9` stands for nine lines, in which `{i}` and
`{i - 1}` are numbers. In messages, names in braces stand for the names and figures of the case.
[policies.md](policies.md) describes the policies and the limits. Where a reason names no policies,
any may give it.
"""


def concrete_reasons() -> list[type[Reason]]:
    """All reasons with a code, in the order of the page."""
    return [reason for _, module in _CHAPTERS for reason in _reasons_of(module)]


def page() -> str:
    """The page as Markdown."""
    chapters = [_chapter(title, module) for title, module in _CHAPTERS]
    return "\n".join([_INTRODUCTION, _contents(), *chapters])


def _reasons_of(module: ModuleType) -> list[type[Reason]]:
    return [
        member
        for member in vars(module).values()
        if inspect.isclass(member)
        and issubclass(member, Reason)
        and member.__module__ == module.__name__
    ]


def _contents() -> str:
    """A table of all codes."""
    lines = ["| code | meaning |", "| --- | --- |"]
    for code, reasons in _by_code(concrete_reasons()).items():
        meaning = " Or: ".join(_paragraphs(reason)[0] for reason in reasons)
        lines.append(f"| [`{code}`](#{code}) | {meaning} |")
    return "\n".join(lines) + "\n"


def _by_code(reasons: list[type[Reason]]) -> dict[str, list[type[Reason]]]:
    found: dict[str, list[type[Reason]]] = {}
    for reason in reasons:
        found.setdefault(reason.code, []).append(reason)
    return found


def _chapter(title: str, module: ModuleType) -> str:
    lines = [f"## {title}", "", *_separated(_paragraphs(module))]
    for code, reasons in _by_code(_reasons_of(module)).items():
        lines += [f"### `{code}`", ""]
        for place, reason in enumerate(reasons):
            lines += ["Another reason has the same code.", ""] if place else []
            lines += [_section(reason), ""]
    return "\n".join(lines).rstrip() + "\n"


def _paragraphs(described: ModuleType | type[Reason]) -> list[str]:
    """What a docstring says, as Markdown, each paragraph on one line."""
    text = inspect.cleandoc(described.__doc__ or "")
    text = re.sub(r":class:`([^`]+)`", r"`\1`", text).replace("``", "`")
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]


def _section(reason: type[Reason]) -> str:
    facts = [
        ("message", reason.template),
        ("would fuse if", reason.remedy),
        ("scarce", reason.scarce),
        ("limit", f"`Limits.{reason.limit}`" if reason.limit else ""),
        ("policies", "" if reason.policies == POLICIES else _names(reason.policies)),
    ]
    lines = _separated(_paragraphs(reason))
    lines += [f"- {name}: {value}" for name, value in facts if value]
    lines += ["", f"With {_settings(reason.example)}, it holds of {_pair(reason.example)}:", ""]
    lines += [*_code(reason.example), "", *_near_miss(reason)]
    return "\n".join(lines)


def _near_miss(reason: type[Reason]) -> list[str]:
    near = reason.near_miss
    is_same = near.text == reason.example.text
    pair = f"{_pair(near)} of the same model" if is_same else _pair(near)
    outcome = f"{pair} are fused" if reason.verdict == REFUSED else f"it does not hold of {pair}"
    sentence = f"With {_settings(near)}, {outcome}"
    return [f"{sentence}."] if is_same else [f"{sentence}:", "", *_code(near)]


def _separated(paragraphs: list[str]) -> list[str]:
    """Wrapped paragraphs with an empty line behind each."""
    wrapped = (textwrap.wrap(p, 100, break_on_hyphens=False) for p in paragraphs)
    return [line for lines in wrapped for line in (*lines, "")]


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _pair(example: Example) -> str:
    first, second = example.pair
    return f"`{first}` and `{second}`"


def _settings(example: Example) -> str:
    """How an example is fused."""
    asked = [f"policy `{example.policy}`"]
    if example.limits:
        limits = ", ".join(f"{name}={value}" for name, value in example.limits.items())
        asked.append(f"`Limits({limits})`")
    if example.no_fuse:
        asked.append(f"`no_fuse={list(example.no_fuse)}`")
    return " and ".join(asked)


def _code(example: Example) -> list[str]:
    return ["```python", *example.text.splitlines(), "```"]


if __name__ == "__main__":
    sys.stdout.write(page())
