"""The table of line starts of a text, cheap to carry from one edit to the next.

Lines end as the Language Server Protocol says: at LF, CRLF or CR. Form feed, NEL and U+2028 are ordinary characters.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from itertools import accumulate

import msgspec

_LINE_END = re.compile("\r\n?|\n")


class LineTable(msgspec.Struct, frozen=True):
    """Holds the offsets at which lines start, as a gap buffer.

    Starts up to the last edit lie in `head`, later ones in `tail`, less `shift`. Typing within a line therefore only
    changes `shift`, whatever the size of the file, and older tables stay valid. `head` is never empty: line 0 starts
    at 0.
    """

    head: tuple[int, ...]
    tail: tuple[int, ...] = ()
    shift: int = 0

    def __len__(self) -> int:
        return len(self.head) + len(self.tail)

    def start(self, line: int) -> int:
        """Returns the offset at which a line starts."""
        n_head = len(self.head)
        return self.head[line] if line < n_head else self.tail[line - n_head] + self.shift

    def line_of(self, offset: int) -> int:
        """Returns the line that holds an offset; a line's end belongs to the line."""
        n_later = bisect_right(self.tail, offset - self.shift)
        return (len(self.head) + n_later if n_later else bisect_right(self.head, offset)) - 1

    def edited(self, text: str, start: int, end: int, n_inserted: int) -> LineTable:
        """Returns the table after `[start, end)` was replaced by `n_inserted` characters, giving `text`.

        Whether a line starts at an offset depends on the characters on both its sides, so starts before `start` and
        after `end` stay, and only those between are searched again.
        """
        moved = self._split(start)
        n_gone = bisect_right(moved.tail, end - moved.shift)
        stop = start + n_inserted
        found = (m.end() for m in _LINE_END.finditer(text, max(start - 1, 0), min(stop + 1, len(text))))
        new = tuple(at for at in found if start <= at <= stop)
        return LineTable(
            moved.head + new if new else moved.head,
            moved.tail[n_gone:] if n_gone else moved.tail,
            moved.shift + n_inserted - (end - start),
        )

    def _split(self, offset: int) -> LineTable:
        """Returns the same table with exactly line 0 and the starts before `offset` in `head`."""
        n_head = max(bisect_left(self.head, offset), 1)
        if n_head < len(self.head):
            back = tuple(at - self.shift for at in self.head[n_head:])
            return LineTable(self.head[:n_head], back + self.tail, self.shift)
        n_tail = bisect_left(self.tail, offset - self.shift)
        if n_tail:
            ahead = tuple(at + self.shift for at in self.tail[:n_tail])
            return LineTable(self.head + ahead, self.tail[n_tail:], self.shift)
        return self


def line_table(text: str) -> LineTable:
    """Returns the line table of a whole text."""
    if "\r" in text:
        return LineTable((0, *(m.end() for m in _LINE_END.finditer(text))))
    lengths = map(len, text.split("\n")[:-1])
    return LineTable((0, *accumulate(lengths, lambda at, n: at + n + 1, initial=0))[1:])
