"""A suggestion neither repeats a closing quote nor leaves a string open."""

from __future__ import annotations

from collections.abc import Iterator

from midspan_server.context import Context
from midspan_server.filters.verdict import Dropped
from midspan_server.python_code import open_quote

_QUOTES = ('"', "'")


def quotes(text: str, context: Context) -> str | Dropped:
    """Cuts the end of a string off Python where what follows has it too, and drops what closes it otherwise or opens
    one that nothing closes.
    """
    if not any(quote in text for quote in _QUOTES):
        return text
    block = context.block
    before, after = open_quote(block), open_quote(block + text)
    # of a string of several lines the end in the same line is its own, whatever quotes the lines below may hold
    is_ended_twice = len(before) == 3 and not after and context.line_suffix.startswith(before)
    if is_ended_twice or (not (before and after) and _is_open_behind(block + text, context)):
        if before:
            closed = Dropped("the suggestion closes a string that is closed after the cursor")
            return next(_without_repeats(text, before, context), closed)
        if after:
            return Dropped("the suggestion opens a string that nothing closes")
        # what follows begins with the end of a string that is missing from the suggestion
        return Dropped("the suggestion repeats a quote that follows the cursor")
    return text


def _without_repeats(text: str, quote: str, context: Context) -> Iterator[str]:
    """Yields what stands before a quote from which on a text says what follows it in the line, and ends the string."""
    at = text.find(quote)
    while at >= 0:
        head = text[:at]
        if (
            head.strip()
            and context.line_suffix.startswith(text[at:])
            and not _is_open_behind(context.block + head, context)
        ):
            yield head
        at = text.find(quote, at + 1)


def _is_open_behind(code: str, context: Context) -> bool:
    """Says whether a string is open behind the rest of the line, or one of several lines behind all that follows."""
    at_line_end = open_quote(code + context.line_suffix)
    if len(at_line_end) < 3:
        return bool(at_line_end)
    return bool(open_quote(code + context.suffix)) and not open_quote(context.block + context.suffix)
