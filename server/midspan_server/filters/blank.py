"""Nothing is offered that nobody could see."""

from __future__ import annotations

from midspan_server.context import Context
from midspan_server.filters.verdict import Dropped


def blank(text: str, context: Context) -> str | Dropped:
    """Takes blanks off the end of a line, and drops what is nothing else."""
    seen = text if context.line_suffix else text.rstrip()
    return seen if seen.strip() else Dropped("the suggestion is blank")
