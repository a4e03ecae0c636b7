"""What surrounds the cursor, computed once per request.

The engine sees LF only; offsets stay those of the snapshot.
"""

from __future__ import annotations

from functools import cached_property

import msgspec

from midspan_engine.errors import InputError
from midspan_server.python_code import current_block
from midspan_server.settings import Trigger
from midspan_server.text import Position, Snapshot, valid

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


class Selected(msgspec.Struct, frozen=True):
    """Holds the item selected in the client's completion menu: its text and the range that it replaces."""

    start: Position
    end: Position
    text: str


class Around(msgspec.Struct, frozen=True):
    """Holds what is read besides the document itself: the other cells of a notebook, code of other files."""

    before: str = ""
    after: str = ""


NOTHING_AROUND = Around()


class Context(msgspec.Struct, frozen=True, kw_only=True, dict=True):
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
    language: str = "python"
    """LSP language id."""
    selected: str = ""

    @cached_property
    def block(self) -> str:
        """The prefix from its last definition on, see `current_block`."""
        return current_block(self.prefix)

    @property
    def is_blank_line(self) -> bool:
        return not self.line_prefix.strip() and not self.line_suffix.strip()

    def after(self, text: str) -> Context:
        """Returns what is read once a suggestion of this text is accepted; the offsets stay those of the snapshot."""
        prefix = self.prefix + text
        line_prefix = prefix[prefix.rfind("\n") + 1 :]
        return msgspec.structs.replace(self, prefix=prefix, line_prefix=line_prefix, trigger="automatic", selected="")


def context_at(
    snapshot: Snapshot,
    offset: int,
    trigger: Trigger,
    selected: Selected | None = None,
    *,
    language: str = "python",
    around: Around = NOTHING_AROUND,
) -> Context:
    """Returns the context of an offset. A selected item that does not stand at the cursor's line is left aside.

    What is read around the document fills what the document leaves of the longest prefix and suffix.

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
        item_start, item_end = snapshot.offset_at(selected.start), snapshot.offset_at(selected.end)
        if line_start <= item_start <= offset <= item_end <= line_end:
            start, end, inserted = item_start, item_end, selected.text
    first = _prefix_start(snapshot, start)
    prefix = plain(snapshot.text[first:start] + inserted)
    if not first and around.before:
        prefix = _last_lines(plain(around.before), MAX_PREFIX - len(prefix)) + prefix
    suffix, is_cut = _suffix(snapshot, end)
    if not is_cut and around.after:
        suffix, is_cut = _first_lines(suffix + plain(around.after))
    return Context(
        start=start,
        end=end,
        prefix=prefix,
        suffix=suffix,
        suffix_is_cut=is_cut,
        line_prefix=prefix[prefix.rfind("\n") + 1 :],
        line_suffix=suffix.partition("\n")[0],
        trigger=trigger,
        language=language,
        selected=plain(inserted),
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


def _last_lines(text: str, room: int) -> str:
    """Returns the last whole lines of a text that fit into so many characters, cut in jumps like a prefix."""
    if len(text) <= room:
        return text
    cut = -(-(len(text) - room) // PREFIX_JUMP) * PREFIX_JUMP
    return text[cut:].partition("\n")[2]


def _first_lines(text: str) -> tuple[str, bool]:
    """Returns the first lines of a text that fit into a suffix, and whether more follows."""
    head = text[:MAX_SUFFIX]
    return (text, False) if head == text else (head[: head.rfind("\n") + 1] or head, True)


def _suffix(snapshot: Snapshot, offset: int) -> tuple[str, bool]:
    """Returns the suffix, whole lines of it where they fit, and whether more follows."""
    text = snapshot.text[offset : offset + MAX_SUFFIX]
    is_cut = offset + MAX_SUFFIX < len(snapshot.text)
    if is_cut:
        last = max(text.rfind("\n"), text.rfind("\r", 0, -1))
        text = text[: last + 1] if last >= 0 else text
    return plain(text), is_cut


def plain(text: str) -> str:
    """Returns a text with LF line ends and without halves of characters, which no encoding of the wire can hold."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return valid(text)
