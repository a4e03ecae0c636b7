"""The smallest changes that turn one text into another, so that each can be seen and judged by itself."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

import msgspec

_TOKEN = re.compile(r"\n|\w+|[ \t]+|.")
_LINE = re.compile(r"[^\n]+\n?|\n")

_MAX_PAIRS = 50_000
"""Pairs of the same word that one comparison may look at: measured, a fifth of a second where all is repetition; the
words of some 30 changed lines.
"""


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
    apart is one change, and so is what is too long to be compared.
    """
    found: list[Hunk] = []
    by_line, left = _changes(_LINE.findall(old), _LINE.findall(new), _MAX_PAIRS)
    for change in by_line:
        inner, left = _changes(_TOKEN.findall(old[change.start : change.end]), _TOKEN.findall(change.text), left)
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
    regions in which they lie, be it at an end: a letter typed right behind `pass` makes another word of it.
    """
    if old == new:
        return list(changes)
    by = len(new) - len(old)
    for first, last in _rewritten(old, new):
        if not any(start <= last and first <= end for start, end in regions):
            return [change if change.end <= first else change.moved(by) for change in changes]
    return None


def _rewritten(old: str, new: str) -> Iterator[tuple[int, int]]:
    """Yields what of `old` was replaced, read as far right and as far left as it can be: of two line breaks in a row
    nobody knows which is the new one.
    """
    first = _n_alike(old, new)
    yield first, len(old) - _n_alike(old[first:][::-1], new[first:][::-1])
    n_same = _n_alike(old[::-1], new[::-1])
    yield _n_alike(old[: len(old) - n_same], new[: len(new) - n_same]), len(old) - n_same


def _n_alike(first: Sequence[str], second: Sequence[str]) -> int:
    """Returns how many characters or words at their start two texts share."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _changes(old: Sequence[str], new: Sequence[str], max_pairs: int) -> tuple[list[Hunk], int]:
    """Returns the changed runs of two lists of strings, with offsets in the joined old ones, and how many pairs remain
    for other comparisons; where they do not suffice, there is one run.
    """
    n_first = _n_alike(old, new)
    n_last = _n_alike(old[n_first:][::-1], new[n_first:][::-1])
    offsets = [len("".join(old[:n_first]))]
    old, new = old[n_first : len(old) - n_last], new[n_first : len(new) - n_last]
    for each in old:
        offsets.append(offsets[-1] + len(each))
    counts = Counter(new)
    n_pairs = sum(counts[each] for each in old)
    if n_pairs > max_pairs:
        return [Hunk(offsets[0], offsets[-1], "".join(new))], max_pairs
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    found = [
        Hunk(offsets[first], offsets[last], "".join(new[new_first:new_last]))
        for tag, first, last, new_first, new_last in matcher.get_opcodes()
        if tag != "equal"
    ]
    return found, max_pairs - n_pairs
