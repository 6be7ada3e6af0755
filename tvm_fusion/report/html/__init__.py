"""The report as one page that shows the graph before and after."""

from .page import render_html

__all__ = ["render_html"]
