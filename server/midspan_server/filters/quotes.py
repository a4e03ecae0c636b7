"""A suggestion neither repeats a closing quote nor leaves a string open."""

from __future__ import annotations

from midspan_server.context import Context
from midspan_server.filters.verdict import Dropped
from midspan_server.python_code import open_quote

_QUOTES = ('"', "'")


def quotes(text: str, context: Context) -> str | Dropped:
    """Drops Python that closes a string which what follows closes, or that opens one which nothing closes."""
    if not any(quote in text for quote in _QUOTES):
        return text
    block = context.block
    before, after = open_quote(block), open_quote(block + text)
    if not (before and after) and _is_open_behind(block + text, context):
        if before:
            return Dropped("the suggestion closes a string that is closed after the cursor")
        if after:
            return Dropped("the suggestion opens a string that nothing closes")
        # what follows begins with the end of a string that is missing from the suggestion
        return Dropped("the suggestion repeats a quote that follows the cursor")
    return text


def _is_open_behind(code: str, context: Context) -> bool:
    """Says whether a string is open behind the rest of the line, or one of several lines behind all that follows."""
    at_line_end = open_quote(code + context.line_suffix)
    if len(at_line_end) < 3:
        return bool(at_line_end)
    return bool(open_quote(code + context.suffix)) and not open_quote(context.block + context.suffix)
