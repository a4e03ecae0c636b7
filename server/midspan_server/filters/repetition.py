"""A suggestion does not go round in circles."""

from __future__ import annotations

import re

from midspan_server.context import Context
from midspan_server.filters.verdict import Dropped

_WORD = re.compile(r"[^\W\d_]{2}")
_LOOP = re.compile(r"(?=[^\n]*[^\W\d_])([^\n]{2,40}?)\1{4,}")
"""Five times the same within a line, letters in it: zeros in a row are a matrix."""


def repetition(text: str, context: Context) -> str | Dropped:
    """Drops a text that loops within a line or repeats the lines above it, and cuts one that repeats its own lines."""
    loop = _LOOP.search(text)
    if loop is not None and _WORD.search(loop[1]):
        return Dropped("the suggestion repeats itself")
    text = _cut_at_copy(text)
    if _WORD.search(text) and not context.line_suffix.strip() and _copies_above(text, context):
        return Dropped("the suggestion repeats the lines above it")
    return text


def _cut_at_copy(text: str) -> str:
    """Returns the text up to a line that repeats the line before it."""
    lines = text.split("\n")
    for k in range(1, len(lines)):
        if lines[k].strip() == lines[k - 1].strip() and _WORD.search(lines[k]):
            return "\n".join(lines[:k])
    return text


def _copies_above(text: str, context: Context) -> bool:
    """Says whether the line, as it would stand, and those after it are a copy of as many lines right above."""
    own = [line.rstrip() for line in (context.line_prefix + text).split("\n") if line.strip()]
    above = context.prefix[: len(context.prefix) - len(context.line_prefix)]
    return own == [line.rstrip() for line in above.split("\n") if line.strip()][-len(own) :]
