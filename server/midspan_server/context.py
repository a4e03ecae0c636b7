"""What surrounds the cursor, computed once per request, and the `Fill` that asks the engine about it.

The engine sees LF only; offsets stay those of the snapshot.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from midspan_engine.protocol import Fill
from midspan_server.settings import Settings
from midspan_server.silence import Silence
from midspan_server.text import Snapshot

Trigger = Literal["automatic", "invoked"]

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
    """Holds the item selected in the client's completion menu: its text and the offsets that it replaces."""

    start: int
    end: int
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
    line_prefix: str
    line_suffix: str
    indentation: str
    trigger: Trigger
    selected: str = ""

    @property
    def is_blank_line(self) -> bool:
        return not self.line_prefix.strip() and not self.line_suffix.strip()


def context_at(snapshot: Snapshot, offset: int, trigger: Trigger, selected: Selected | None = None) -> Context:
    """Returns the context of an offset. A selected item that does not stand at the cursor's line is left aside."""
    line_start, line_end = snapshot.line_span(snapshot.lines.line_of(offset))
    offset = min(offset, line_end)
    if selected is None or not line_start <= selected.start <= offset <= selected.end <= line_end:
        selected = Selected(offset, offset, "")
    prefix_start = _prefix_start(snapshot, selected.start)
    prefix = _plain(snapshot.text[prefix_start : selected.start] + selected.text)
    suffix = _suffix(snapshot, selected.end)
    line_prefix = prefix[prefix.rfind("\n") + 1 :]
    return Context(
        start=selected.start,
        end=selected.end,
        prefix=prefix,
        suffix=suffix,
        line_prefix=line_prefix,
        line_suffix=suffix.partition("\n")[0],
        indentation=line_prefix[: len(line_prefix) - len(line_prefix.lstrip(" \t"))],
        trigger=trigger,
        selected=_plain(selected.text),
    )


def reason_not_to_ask(context: Context) -> Silence | None:
    """Returns why a suggestion would only be in the way here, or None."""
    if context.trigger == "invoked":
        return None
    if is_word(context.prefix[-1:]) and is_word(context.suffix[:1]):
        return Silence("the cursor is inside a word; ask by hand to get a suggestion there")
    return None


def fill_of(context: Context, document: str, language: str, settings: Settings) -> Fill:
    """Returns the request to the engine: several lines and candidates only where a user asked for them by hand."""
    is_invoked = context.trigger == "invoked"
    single_line = not (is_invoked and context.is_blank_line)
    return Fill(
        id=0,  # the engine client numbers what it sends
        document=document,
        parts=(context.prefix, context.suffix),
        language=language,
        single_line=single_line,
        max_tokens=settings.max_tokens if single_line else min(settings.max_tokens * MULTI_LINE_FACTOR, 192),
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


def _suffix(snapshot: Snapshot, offset: int) -> str:
    """Returns the suffix, whole lines of it where they fit."""
    text = snapshot.text[offset : offset + MAX_SUFFIX]
    if offset + MAX_SUFFIX < len(snapshot.text):
        last = max(text.rfind("\n"), text.rfind("\r", 0, -1))
        text = text[: last + 1] if last >= 0 else text
    return _plain(text)


def _plain(text: str) -> str:
    """Returns a text with LF line ends and without halves of characters, which no encoding of the wire can hold."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text if text.isascii() else _LONE_SURROGATE.sub("\ufffd", text)
