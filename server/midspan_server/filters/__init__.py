"""What stands between the engine's candidates and the user: pure filters in one ordered list.

A filter returns the text to show, cut or mended, or why it must not be shown. Those that cut come first, so that the
others judge what is left.
"""

from __future__ import annotations

from midspan_server.context import Context
from midspan_server.filters.balance import balance
from midspan_server.filters.blank import blank
from midspan_server.filters.comment import comment
from midspan_server.filters.indentation import indentation
from midspan_server.filters.overlap import overlap
from midspan_server.filters.quotes import quotes
from midspan_server.filters.repetition import repetition
from midspan_server.filters.scope import scope
from midspan_server.filters.verdict import Dropped, Filter

FILTERS: tuple[Filter, ...] = (indentation, scope, repetition, balance, overlap, quotes, comment, blank)
PYTHON_FILTERS = frozenset((scope, balance, quotes, comment))
"""Those that read what they judge as Python."""

__all__ = ["FILTERS", "PYTHON_FILTERS", "Dropped", "Filter", "sifted"]


def sifted(text: str, context: Context) -> str | Dropped:
    """Returns what of a candidate's text is to be shown, or the first reason not to show it."""
    for judge in FILTERS:
        if judge in PYTHON_FILTERS and context.language != "python":
            continue
        verdict = judge(text, context)
        if isinstance(verdict, Dropped):
            return verdict
        text = verdict
    return text
