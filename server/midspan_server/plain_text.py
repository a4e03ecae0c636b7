"""A document as the engine reads it, with LF line ends, and where its characters stand in the document itself."""

from __future__ import annotations

import re
from bisect import bisect_left

from midspan_server.context import plain
from midspan_server.text import Position, Snapshot, Span


class PlainText:
    """The text of one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.text = plain(snapshot.text)
        self._breaks = [found.start() for found in re.finditer("\r\n", snapshot.text)] if "\r" in snapshot.text else []
        """Of each CRLF, where it starts in the document."""
        self._plain_breaks = [at - n for n, at in enumerate(self._breaks)]
        self._newline = "\r\n" if self._breaks else "\n"

    def offset_at(self, position: Position) -> int:
        """Returns the offset in the plain text of a position. Raises InputError where the document has no such line."""
        offset = self.snapshot.offset_at(position)
        return offset - bisect_left(self._breaks, offset)

    def offsets_of(self, span: Span) -> tuple[int, int]:
        """Returns the ends of a range in order. Raises InputError where the document has no such line."""
        start, end = sorted((self.offset_at(span.start), self.offset_at(span.end)))
        return start, end

    def span_of(self, start: int, end: int) -> Span:
        """Returns the range of the document between two offsets of the plain text."""
        return Span(*(self.snapshot.position_at(self.to_document(at)) for at in (start, end)))

    def to_document(self, offset: int) -> int:
        """Returns the offset in the document of a character of the plain text."""
        return offset + bisect_left(self._plain_breaks, offset)

    def written(self, text: str) -> str:
        """Returns a text with the line ends of the document."""
        return text.replace("\n", self._newline)
