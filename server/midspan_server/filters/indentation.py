"""A suggestion is indented as the file is, and as Python asks.

Stray blanks before the first word, tabs for blanks or the other way round, and lines that belong to no block are what
people have to mend by hand most often.
"""

from __future__ import annotations

import re
from math import gcd

from midspan_server.context import Context
from midspan_server.filters.verdict import Dropped
from midspan_server.python_code import current_block, lines_inside, open_quote, opens_block, width_of

_INDENT = re.compile(r"^[ \t]+(?=\S)", re.MULTILINE)
_UNIT = 4
"""Blanks of a level where the text does not tell."""

_MISFIT = Dropped("the suggestion is indented unlike the lines around it")


def indentation(text: str, context: Context) -> str | Dropped:
    """Mends the blanks at the start of a text and of its lines, cuts it at a line that belongs to no block, and drops
    it where that is the first.
    """
    if open_quote(current_block(context.prefix)):
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
    code = context.prefix[: len(context.prefix) - len(context.line_prefix)]
    levels, above = _levels(code), _last_line(code)
    lines = (context.line_prefix + text).split("\n")
    inside = lines_inside(current_block(context.prefix) + text, len(lines))
    for k, line in enumerate(lines):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not inside[k]:
            width, must_open = width_of(line), opens_block(above)
            fits = width > levels[-1] if must_open else width in levels
            if not fits and not (k == 0 and is_placed and not must_open):
                return "\n".join(lines[:k])[len(context.line_prefix) :] if k else _MISFIT
            levels = [level for level in levels if level < width] + [width]
        above = line
    return text


def _is_deep_enough(context: Context) -> bool:
    """Says whether the cursor stands in a block that the line above it opens."""
    above = _last_line(context.prefix[: len(context.prefix) - len(context.line_prefix)])
    return opens_block(above) and width_of(context.line_prefix) > width_of(above)


def _levels(code: str) -> list[int]:
    """Returns the columns of the blocks that the end of the code lies in, outermost first."""
    levels: list[int] = []
    for line in reversed(code.split("\n")):
        if line.strip() and (width := width_of(line)) < (levels[0] if levels else width + 1):
            levels.insert(0, width)
            if not width:
                break
    return levels or [0]


def _last_line(code: str) -> str:
    """Returns the last line that holds code."""
    lines = (line for line in reversed(code.split("\n")) if line.strip() and not line.lstrip().startswith("#"))
    return next(lines, "")
