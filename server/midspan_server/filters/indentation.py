"""A suggestion is indented as the file is, and as Python asks.

Stray blanks before the first word, tabs for blanks or the other way round, and lines that belong to no block are what
people have to mend by hand most often.
"""

from __future__ import annotations

import re
from math import gcd
from typing import NamedTuple

from midspan_server.context import Context
from midspan_server.filters.verdict import Dropped
from midspan_server.python_code import definitions, open_quote, opens_block, statement_starts, width_of

_INDENT = re.compile(r"^[ \t]+(?=\S)", re.MULTILINE)
_UNIT = 4
"""Blanks of a level where the text does not tell."""

_MISFIT = Dropped("the suggestion is indented unlike the lines around it")


class _Statement(NamedTuple):
    line: int
    """Where it begins, counted from the line of the cursor."""
    width: int
    opens: bool
    """Whether a block must follow."""


def indentation(text: str, context: Context) -> str | Dropped:
    """Mends the blanks at the start of a text and of its lines, cuts it at a line that belongs to no block, and drops
    it where that is the first.
    """
    if open_quote(context.block):
        return text
    if context.line_prefix.strip():
        if context.line_prefix[-1].isspace():
            text = text.lstrip(" \t")
        return _fitting(_in_the_files_way(text, context, is_first=False), context)
    text = _in_the_files_way(text, context, is_first=True)
    fitting = _fitting(text, context)
    is_stray = isinstance(fitting, Dropped) or _is_deep_enough(context)
    return _fitting(text.lstrip(" \t"), context) if is_stray and text[:1].isspace() else fitting


def _in_the_files_way(text: str, context: Context, is_first: bool) -> str:
    """Returns the text with lines indented by tabs in a file that uses them, by blanks in one that does not."""
    indents = _INDENT.findall(context.prefix)
    if not indents:
        return text
    head, line_break, tail = ("", "", text) if is_first else text.partition("\n")
    if indents[-1].startswith("\t"):
        unit = gcd(_UNIT, *(len(found) for found in _INDENT.findall(tail) if "\t" not in found))
        tail = _INDENT.sub(lambda found: found[0].replace(" " * unit, "\t") if unit > 1 else found[0], tail)
    elif "\t" in tail:
        unit = gcd(*(len(found) for found in indents if "\t" not in found)) or _UNIT
        tail = _INDENT.sub(lambda found: found[0].replace("\t", " " * unit), tail)
    return head + line_break + tail


def _fitting(text: str, context: Context) -> str | Dropped:
    """Returns Python text up to the first line that no block takes; a cursor placed by hand is left where it is."""
    is_placed = bool(context.line_prefix.strip()) or not text[:1].isspace()
    if context.language != "python" or (context.line_prefix.strip() and "\n" not in text):
        return text
    levels: list[int] = []
    must_open = False
    for line, width, opens in _statements(context, text):
        if line >= 0:
            known = levels or [0]
            # What stands further left than all that is known belongs to a block whose start was cut off.
            fits = width > known[-1] if must_open else width in known or width < known[0]
            if not fits and not (line == 0 and is_placed and not must_open):
                lines = (context.line_prefix + text).split("\n")
                return "\n".join(lines[:line])[len(context.line_prefix) :] if line else _MISFIT
        levels = [level for level in levels if level < width] + [width]
        must_open = opens
    return text


def _is_deep_enough(context: Context) -> bool:
    """Says whether the cursor stands in a block that the statement above it opens."""
    *above, own = _statements(context, "a")
    return own.line == 0 and bool(above) and above[-1].opens and own.width > above[-1].width


def _statements(context: Context, text: str) -> list[_Statement]:
    """Returns the statements from the last definition at the left margin to the end of a text at the cursor."""
    pieces = definitions(context.prefix)
    top = max((k for k, piece in enumerate(pieces) if piece[:1].strip()), default=0)
    *above, block = pieces[top:]
    first = -sum(piece.count("\n") for piece in (*above, block))
    found: list[_Statement] = []
    for code in (*above, block + text):
        lines, starts = code.split("\n"), statement_starts(code)
        for start, end in zip(starts, [*starts[1:], None], strict=True) if starts else ():
            opens = opens_block("\n".join(lines[start:end]))
            found.append(_Statement(first + start, width_of(lines[start]), opens))
        first += len(lines) - 1
    return found
