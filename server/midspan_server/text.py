"""Documents as the editor has them: immutable snapshots, edited in place of being copied line by line.

A position counts a line from 0 and, inside it, code units of the encoding agreed with the client; an offset counts
characters (code points) from the start of the text. A position beyond the end of its line means the end of the line,
a position inside a character means the start of the character; a line beyond the document is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

import msgspec

from midspan_engine.errors import InputError
from midspan_server.lines import LineTable, line_table

MAX_CHARACTERS = 2_000_000
"""Larger files are data or generated code; people do not type in them, and nothing is computed for them."""

Encoding = Literal["utf-8", "utf-16", "utf-32"]

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class Position(msgspec.Struct, frozen=True):
    """Counts lines and, within the line, code units of the agreed encoding, both from 0."""

    line: int
    character: int


class Span(msgspec.Struct, frozen=True):
    """A range of a document, as clients name it; `start` may lie behind `end`."""

    start: Position
    end: Position


class Edit(msgspec.Struct, frozen=True):
    """Replaces the text between two positions, or the whole text where there are none."""

    text: str
    start: Position | None = None
    end: Position | None = None


class Snapshot(msgspec.Struct, frozen=True):
    """Holds one version of a document; it never changes."""

    text: str
    version: int
    lines: LineTable
    encoding: Encoding

    def line_span(self, line: int) -> tuple[int, int]:
        """Returns the offsets of a line's start and of its end, line break excluded."""
        start = self.lines.start(line)
        if line + 1 == len(self.lines):
            return start, len(self.text)
        end = self.lines.start(line + 1) - 1
        if end > start and self.text[end] == "\n" and self.text[end - 1] == "\r":
            end -= 1
        return start, end

    def offset_at(self, position: Position) -> int:
        """Returns the offset of a position. Raises InputError where the document has no such line."""
        line, character = position.line, position.character
        if not 0 <= line < len(self.lines):
            raise InputError(
                f"line {line + 1} is outside the document, which has {len(self.lines)} lines; "
                "ask again with a position inside it"
            )
        start, end = self.line_span(line)
        # A character is at least one code unit, so no more characters than code units have to be looked at.
        head = self.text[start : min(end, start + max(character, 0))]
        return start + _n_characters(head, character, self.encoding)

    def position_at(self, offset: int) -> Position:
        """Returns the position of an offset."""
        line = self.lines.line_of(offset)
        return Position(line, _n_units(self.text[self.lines.start(line) : offset], self.encoding))

    def edited(self, edit: Edit, version: int) -> Snapshot:
        """Returns the snapshot after an edit. Raises InputError for a range outside the document."""
        if edit.start is None or edit.end is None:
            return snapshot(edit.text, version, self.encoding)
        start, end = self._edge(edit.start), self._edge(edit.end)
        if start > end:
            raise InputError(f"an edit ends before it starts, at line {edit.end.line + 1}; open the document again")
        text = "".join((self.text[:start], edit.text, self.text[end:]))
        stop = start + len(edit.text)
        if _splits_pair(text, start) or _splits_pair(text, stop):
            return snapshot(text, version, self.encoding)
        return Snapshot(text, version, self.lines.edited(text, start, end, len(edit.text)), self.encoding)

    def _edge(self, position: Position) -> int:
        # Clients write the end of a whole document as the start of the line after the last one.
        return len(self.text) if position.line == len(self.lines) else self.offset_at(position)


class TextDocument:
    """Follows one open document through its versions."""

    def __init__(self, uri: str, language: str, snapshot: Snapshot, paths: tuple[str, ...] = ()) -> None:
        self.uri = uri
        self.paths = paths
        """The names of the file: the one in the URI, and the one it links to."""
        self.language = language
        self.snapshot = snapshot
        self.is_in_step = True
        """False after an edit that could not be applied: the editor's text is no longer known."""
        self.n_unread = 0
        """Characters of a text that is too large to be kept; the snapshot is then empty."""

    @classmethod
    def opened(
        cls, uri: str, language: str, text: str, version: int, encoding: Encoding, paths: tuple[str, ...]
    ) -> TextDocument:
        """Returns a document as the client sends it first."""
        document = cls(uri, language, snapshot("", version, encoding), paths)
        document.change([Edit(text)], version)
        return document

    def change(self, edits: Iterable[Edit], version: int) -> None:
        """Applies edits in order. Raises InputError for one that does not fit; the document is then out of step until
        its whole text is sent again.
        """
        snapshot = self.snapshot
        for edit in edits:
            if edit.start is None:
                self.is_in_step = True
                self.n_unread = len(edit.text) if len(edit.text) > MAX_CHARACTERS else 0
                if self.n_unread:
                    snapshot = snapshot.edited(Edit(""), version)
            if self.is_in_step and not self.n_unread:
                try:
                    snapshot = snapshot.edited(edit, version)
                except InputError:
                    self.is_in_step = False
                    raise
        self.snapshot = msgspec.structs.replace(snapshot, version=version)


def snapshot(text: str, version: int = 0, encoding: Encoding = "utf-16") -> Snapshot:
    """Returns the snapshot of a whole text; halves of characters that stand side by side are joined."""
    if not text.isascii():
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return Snapshot(text, version, line_table(text), encoding)


def valid(text: str) -> str:
    """Returns a text without halves of characters, which no encoding of the wire can hold."""
    return text if text.isascii() else _LONE_SURROGATE.sub("\ufffd", text)


def _n_units(text: str, encoding: Encoding) -> int:
    if encoding == "utf-32" or text.isascii():
        return len(text)
    if encoding == "utf-16":
        return len(text.encode("utf-16-le", "surrogatepass")) // 2
    return len(text.encode("utf-8", "surrogatepass"))


def _n_characters(text: str, n_units: int, encoding: Encoding) -> int:
    """Returns how many whole characters of `text` lie in its first `n_units` code units."""
    if encoding == "utf-32" or text.isascii():
        return max(min(n_units, len(text)), 0)
    if encoding == "utf-16":
        units = text.encode("utf-16-le", "surrogatepass")[: 2 * n_units]
        head = units.decode("utf-16-le", "surrogatepass")
        return len(head) - bool(head and head[-1] != text[len(head) - 1])
    units = text.encode("utf-8", "surrogatepass")
    end = min(n_units, len(units))
    while 0 < end < len(units) and units[end] & 0xC0 == 0x80:
        end -= 1
    return len(units[:end].decode("utf-8", "surrogatepass"))


def _splits_pair(text: str, offset: int) -> bool:
    """Says whether the two halves of one character (UTF-16 surrogates) meet at an offset."""
    return "\ud800" <= text[offset - 1 : offset] <= "\udbff" and "\udc00" <= text[offset : offset + 1] <= "\udfff"
