"""A small model that shows when a reason holds, as text that the documentation prints."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

#: A line of a source that stands for several, which the comment at its end numbers.
_REPEATED = re.compile(r"(?P<line>.*?) *# for i = (?P<first>\d+) to (?P<last>\d+)$")

#: What a repeated line says of its number: ``{i}``, ``{i - 1}``, ``{i + 1}``.
_NUMBER = re.compile(r"{i(?: (?P<sign>[-+]) (?P<offset>\d+))?}")


@dataclass(frozen=True)
class Example:
    """A model, how it is fused, and the pair of ops that a reason speaks of.

    Parameters
    ----------
    source : str
        A Relax function in TVMScript, without its decorator. A line that ends with
        ``# for i = 1 to 9`` stands for nine, in which ``{i}`` and ``{i - 1}`` are numbers; from a
        larger to a smaller number it counts down.
    pair : tuple of str
        Two variables: a producer and its consumer, or two that read the same tensor.
    policy : str
        Name of the policy.
    limits : mapping
        Fields of :class:`tvm_fusion.Limits` and their values.
    no_fuse : tuple of str
        Ops that are left alone.
    compiled : bool
        Whether the reason needs the figures of the CUDA compiler.
    """

    source: str
    pair: tuple[str, str]
    policy: str = "stitch"
    limits: Mapping[str, Any] = field(default_factory=dict)
    no_fuse: tuple[str, ...] = ()
    compiled: bool = False

    def but(self, old: str = "", new: str = "", **changes: Any) -> Example:
        """The same with one piece of the source replaced, or with other values of fields.

        Raises
        ------
        ValueError
            The source does not have the piece exactly once.
        """
        if not old:
            return replace(self, **changes)
        if self.source.count(old) != 1:
            raise ValueError(f"{old!r} is not exactly once in {self.source}")
        return replace(self, source=self.source.replace(old, new), **changes)

    @property
    def text(self) -> str:
        """The source as it is shown: repeated lines stand once."""
        return "@R.function\n" + textwrap.dedent(self.source).strip()

    @property
    def script(self) -> str:
        """The source as a module in TVMScript."""
        lines = [made for line in self.text.splitlines() for made in _repeat(line)]
        body = textwrap.indent("\n".join(lines), "    ")
        return f"@I.ir_module\nclass Module:\n{body}\n"


def _repeat(line: str) -> list[str]:
    """The lines that one line of a source stands for."""
    found = _REPEATED.match(line)
    if found is None:
        return [line]
    first, last = int(found["first"]), int(found["last"])
    step = 1 if first <= last else -1
    return [_numbered(found["line"], i) for i in range(first, last + step, step)]


def _numbered(line: str, i: int) -> str:
    """A repeated line with its numbers in it."""

    def number(found: re.Match[str]) -> str:
        return str(i + int(f"{found['sign'] or '+'}{found['offset'] or 0}"))

    return _NUMBER.sub(number, line)
