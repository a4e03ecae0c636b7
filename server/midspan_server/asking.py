"""Whether the engine is asked at a cursor, and for what."""

from __future__ import annotations

import re

from midspan_engine.protocol import SEVERAL_LINES_FACTOR, Fill
from midspan_server.context import Context, is_word
from midspan_server.python_code import lines_inside, opens_block, statement_starts, width_of
from midspan_server.settings import MAX_TOKENS, Settings
from midspan_server.silence import Silence

N_INVOKED = 3
"""Candidates of a request made by hand: as many as people look at."""

_NEEDS_LEFT_SIDE = re.compile(r"""[)\]}"'`.,:;=+*/%|&^<>@#-]|(?:!=|(?:if|else|for|and|or|in|is|as|import)\b)""")
"""What the rest of a line begins with when something may be missing before it: a closer, a quote, an operator, a
comment; not a name, a number or an opening bracket, which are whole without more.
"""
_GOES_ON = re.compile(r"[:(\[{,=\\]\s*\Z")


def reason_not_to_ask(context: Context) -> Silence | None:
    """Returns why a suggestion would only be in the way here, or None."""
    if context.trigger == "invoked":
        return None
    if is_word(context.prefix[-1:]) and is_word(context.suffix[:1]):
        return Silence("the cursor is inside a word; ask by hand to get a suggestion there")
    rest = context.line_suffix.strip()
    if rest and not (context.line_prefix.strip() and _NEEDS_LEFT_SIDE.match(rest)):
        return Silence("the rest of the line is whole without a suggestion; ask by hand to get one there")
    return None


def wants_several_lines(context: Context) -> bool:
    """Says whether the gap may hold line breaks: in an empty block, and by hand where a line is blank or goes on."""
    if context.line_suffix.strip():
        return False
    if context.trigger == "invoked":
        return context.is_blank_line or bool(_GOES_ON.search(context.line_prefix))
    return context.is_blank_line and _is_in_empty_block(context)


def fill_of(
    context: Context, document: str, settings: Settings, *, multi_line: bool | None = None, waited_ms: float = 0.0
) -> Fill:
    """Returns the request to the engine: several candidates only where a user asked by hand, several lines where
    `wants_several_lines` says so unless told otherwise. What was waited already counts towards the deadline.
    """
    is_invoked = context.trigger == "invoked"
    if multi_line is None:
        multi_line = wants_several_lines(context)
    return Fill(
        id=0,  # the engine client numbers what it sends
        document=document,
        parts=(context.prefix, context.suffix),
        suffix_is_cut=context.suffix_is_cut,
        language=context.language,
        single_line=not multi_line,
        max_tokens=min(settings.max_tokens * (SEVERAL_LINES_FACTOR if multi_line else 1), MAX_TOKENS),
        n_candidates=N_INVOKED if is_invoked else 1,
        deadline_ms=max(settings.deadline_ms - waited_ms, 1.0),
        min_confidence=settings.confidence(context.trigger),
        priority="several" if is_invoked else "typed",
    )


def _is_in_empty_block(context: Context) -> bool:
    """Says whether the blank line of the cursor is all there is of a block of Python."""
    if context.language != "python":
        return False
    starts = statement_starts(context.block)
    # a header may take several lines, and comments may follow it
    opener = context.block.split("\n")[starts[-1] :] if starts else [""]
    if not opens_block("\n".join(opener)) or lines_inside(context.block, 1)[0]:
        return False
    following = next((line for line in context.suffix.split("\n")[1:] if line.strip()), "")
    return width_of(context.line_prefix) > width_of(opener[0]) >= width_of(following)
