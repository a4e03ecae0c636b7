"""What surrounds the cursor, computed once per request, and the `Fill` that asks the engine about it.

The engine sees LF only; offsets stay those of the snapshot.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from midspan_engine.errors import InputError
from midspan_engine.protocol import Fill
from midspan_server.settings import MAX_TOKENS, Settings
from midspan_server.silence import Silence
from midspan_server.text import Position, Snapshot

Trigger = Literal["automatic", "invoked"]

MAX_LINE = 20_000
"""Characters of a line: longer ones are minified code or data, far outside of what models are trained on."""
MAX_PREFIX = 16 * 1024
"""Characters of prefix: some 4,000 tokens at 4 characters each, what a CPU encodes in a few seconds once."""
PREFIX_JUMP = 4096
"""The start of a cut prefix moves in jumps of this many characters, so that the engine's cached tokens of a long
file stay valid from key to key.
"""
MAX_SUFFIX = 4 * 1024
"""Characters of suffix: of it only the head is pinned on a canvas of 256 slots."""
N_INVOKED = 3
"""Candidates of a request made by hand: as many as people look at."""
MULTI_LINE_FACTOR = 2
"""How much larger the gap of several lines is than that of one."""

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class Selected(msgspec.Struct, frozen=True):
    """Holds the item selected in the client's completion menu: its text and the range that it replaces."""

    start: Position
    end: Position
    text: str


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what surrounds the cursor, with LF line ends.

    `start` and `end` are the offsets that a suggestion replaces; they differ only under a selected completion item,
    whose text is then part of the prefix and `selected` and comes first in what is inserted.
    """

    start: int
    end: int
    prefix: str
    suffix: str
    suffix_is_cut: bool = False
    """True where the document goes on behind the suffix."""
    line_prefix: str
    line_suffix: str
    trigger: Trigger
    selected: str = ""

    @property
    def is_blank_line(self) -> bool:
        return not self.line_prefix.strip() and not self.line_suffix.strip()


def context_at(snapshot: Snapshot, offset: int, trigger: Trigger, selected: Selected | None = None) -> Context:
    """Returns the context of an offset. A selected item that does not stand at the cursor's line is left aside.

    Raises InputError for a line that is too long.
    """
    line = snapshot.lines.line_of(offset)
    line_start, line_end = snapshot.line_span(line)
    if line_end - line_start > MAX_LINE:
        raise InputError(
            f"line {line + 1} has {line_end - line_start:,} characters; nothing is completed in lines above "
            f"{MAX_LINE:,}, break it or choose another"
        )
    start = end = offset = min(offset, line_end)
    inserted = ""
    if selected is not None:
        first, last = snapshot.offset_at(selected.start), snapshot.offset_at(selected.end)
        if line_start <= first <= offset <= last <= line_end:
            start, end, inserted = first, last, selected.text
    prefix = _plain(snapshot.text[_prefix_start(snapshot, start) : start] + inserted)
    suffix, is_cut = _suffix(snapshot, end)
    return Context(
        start=start,
        end=end,
        prefix=prefix,
        suffix=suffix,
        suffix_is_cut=is_cut,
        line_prefix=prefix[prefix.rfind("\n") + 1 :],
        line_suffix=suffix.partition("\n")[0],
        trigger=trigger,
        selected=_plain(inserted),
    )


def reason_not_to_ask(context: Context) -> Silence | None:
    """Returns why a suggestion would only be in the way here, or None."""
    if context.trigger == "invoked":
        return None
    if is_word(context.prefix[-1:]) and is_word(context.suffix[:1]):
        return Silence("the cursor is inside a word; ask by hand to get a suggestion there")
    return None


def fill_of(
    context: Context, document: str, language: str, settings: Settings, *, multi_line: bool | None = None
) -> Fill:
    """Returns the request to the engine: several candidates, and unless told otherwise several lines on a blank one,
    only where a user asked by hand.
    """
    is_invoked = context.trigger == "invoked"
    if multi_line is None:
        multi_line = is_invoked and context.is_blank_line
    return Fill(
        id=0,  # the engine client numbers what it sends
        document=document,
        parts=(context.prefix, context.suffix),
        suffix_is_cut=context.suffix_is_cut,
        language=language,
        single_line=not multi_line,
        max_tokens=min(settings.max_tokens * (MULTI_LINE_FACTOR if multi_line else 1), MAX_TOKENS),
        n_candidates=N_INVOKED if is_invoked else 1,
        deadline_ms=settings.deadline_ms,
        min_confidence=settings.min_confidence,
    )


def is_word(character: str) -> bool:
    """Says whether a character is part of an identifier; the empty string is not."""
    return character.isalnum() or character == "_"


def _prefix_start(snapshot: Snapshot, offset: int) -> int:
    """Returns where the prefix starts: at the first line start after an anchor, at the anchor in a very long line."""
    if offset <= MAX_PREFIX:
        return 0
    anchor = -(-(offset - MAX_PREFIX) // PREFIX_JUMP) * PREFIX_JUMP
    line = snapshot.lines.line_of(anchor - 1) + 1
    if line < len(snapshot.lines) and (start := snapshot.lines.start(line)) <= min(anchor + PREFIX_JUMP, offset):
        return start
    return anchor


def _suffix(snapshot: Snapshot, offset: int) -> tuple[str, bool]:
    """Returns the suffix, whole lines of it where they fit, and whether more follows."""
    text = snapshot.text[offset : offset + MAX_SUFFIX]
    is_cut = offset + MAX_SUFFIX < len(snapshot.text)
    if is_cut:
        last = max(text.rfind("\n"), text.rfind("\r", 0, -1))
        text = text[: last + 1] if last >= 0 else text
    return _plain(text), is_cut


def _plain(text: str) -> str:
    """Returns a text with LF line ends and without halves of characters, which no encoding of the wire can hold."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text if text.isascii() else _LONE_SURROGATE.sub("\ufffd", text)
