"""The smallest changes that turn one text into another, so that each can be seen and judged by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

import msgspec

_TOKEN = re.compile(r"\n|\w+|[ \t]+|.")
_LINE = re.compile(r"[^\n]+\n?|\n")


class Hunk(msgspec.Struct, frozen=True):
    """Replaces the characters from `start` to `end` of a text."""

    start: int
    end: int
    text: str

    def moved(self, by: int) -> Hunk:
        """Returns the same change so many characters further on."""
        return Hunk(self.start + by, self.end + by, self.text)


def hunks(old: str, new: str) -> list[Hunk]:
    """Returns the changes from left to right; they do not touch.

    Lines are compared first, then the words and signs of those that differ; what only blanks or signs of one line keep
    apart is one change.
    """
    found: list[Hunk] = []
    for change in _changes(_LINE.findall(old), _LINE.findall(new)):
        inner = _changes(_TOKEN.findall(old[change.start : change.end]), _TOKEN.findall(change.text))
        found += (each.moved(change.start) for each in inner)
    joined: list[Hunk] = []
    for hunk in found:
        between = old[joined[-1].end : hunk.start] if joined else "\n"
        if re.search(r"[\w\n]", between):
            joined.append(hunk)
        else:
            last = joined.pop()
            joined.append(Hunk(last.start, hunk.end, last.text + between + hunk.text))
    return joined


def applied(text: str, changes: Sequence[Hunk]) -> str:
    """Returns a text with changes made, which are in order."""
    parts, end = [], 0
    for change in changes:
        parts += [text[end : change.start], change.text]
        end = change.end
    return "".join([*parts, text[end:]])


def rebased(changes: Sequence[Hunk], regions: Sequence[tuple[int, int]], old: str, new: str) -> list[Hunk] | None:
    """Returns changes of `old` as changes of `new`, into which it has turned; None where that touched one of the
    regions in which they lie.
    """
    if old == new:
        return list(changes)
    first = _n_alike(old, new)
    n_same = _n_alike(old[first:][::-1], new[first:][::-1])
    last, by = len(old) - n_same, len(new) - len(old)
    if any(not (end <= first or last <= start) or start == end == first for start, end in regions):
        return None
    return [change if change.end <= first else change.moved(by) for change in changes]


def _n_alike(first: str, second: str) -> int:
    """Returns how many characters at their start two texts share."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _changes(old: Sequence[str], new: Sequence[str]) -> Iterator[Hunk]:
    """Yields the changed runs of two lists of strings, with offsets in the joined old ones."""
    offsets = [0]
    for each in old:
        offsets.append(offsets[-1] + len(each))
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    for tag, first, last, new_first, new_last in matcher.get_opcodes():
        if tag != "equal":
            yield Hunk(offsets[first], offsets[last], "".join(new[new_first:new_last]))
