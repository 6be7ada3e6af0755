"""What a build decided and what it saves, as data first, then as text."""

from .data import EdgeSummary, GroupSummary, Summary
from .summary import summarise
from .text import make_console, render

__all__ = ["EdgeSummary", "GroupSummary", "Summary", "make_console", "render", "summarise"]
