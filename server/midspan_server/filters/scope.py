"""A suggestion ends where the block that the cursor stands in ends."""

from __future__ import annotations

import re

from midspan_server.context import Context
from midspan_server.filters.verdict import Dropped
from midspan_server.python_code import lines_inside, width_of

_CONTINUES = re.compile(r"\s*(?:else|elif|except|finally|case)\b")


def scope(text: str, context: Context) -> str | Dropped:
    """Cuts Python of several lines at the first that leaves the block of the cursor.

    On a blank line the block is that of the line's indentation; at the left margin a definition ends it. On a line
    with code it is the block which that line opens.
    """
    first, *more = text.split("\n")
    if not more:
        return text
    line = context.line_prefix + first
    own = width_of(line)
    lowest = own + bool(context.line_prefix.strip())
    inside = lines_inside(context.block + text, len(more))
    was_deeper = False
    for k, line in enumerate(more):
        width = width_of(line)
        if line.strip() and not inside[k]:
            is_back = own == 0 and width == 0 and was_deeper
            if (width < lowest or is_back) and not (width == own and _CONTINUES.match(line)):
                return "\n".join([first, *more[:k]]).rstrip()
            was_deeper = was_deeper or width > own
    return text
