"""A suggestion never turns the rest of its line into a comment, nor ends with a comment that says nothing."""

from __future__ import annotations

from midspan_server.context import Context
from midspan_server.filters.verdict import Dropped
from midspan_server.python_code import ends_in_comment


def comment(text: str, context: Context) -> str | Dropped:
    """Drops Python that begins a comment before code which goes on behind the cursor, and takes an empty one off."""
    rest = context.line_suffix.strip()
    if "#" not in text or rest.startswith("#"):
        return text
    block = context.block
    if ends_in_comment(block) or not ends_in_comment(block + text):
        return text
    if rest:
        return Dropped("the suggestion comments out what follows the cursor")
    code = text.rstrip()[:-1]
    return text if ends_in_comment(block + code) else code.rstrip()
