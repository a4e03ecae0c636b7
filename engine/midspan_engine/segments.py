"""A document in segments: text that stays, and text that is denoised anew, one canvas after the other."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Count = Callable[[str], int]
"""Returns how many tokens a text has."""

_LINE = re.compile(r"[^\n]*\n?")


@dataclass(slots=True, eq=False)
class Segment:
    """A stretch of the document."""

    text: str
    gap: int | None = None
    """Which gap of the request it lies in; None for text outside of them."""
    single_line: bool = True
    """Whether it may not become several lines."""
    confidence: float | None = None
    """Of the text that took its place; None as long as nothing has."""


def chunks(text: str, limit: int, count: Count) -> Iterator[tuple[str, bool]]:
    """Yields a text in pieces, and whether each is to be denoised: as many whole lines as have `limit` tokens.

    A line that is longer is a piece by itself. The blanks around the text and between two pieces stay as they are.
    """
    lines = [line for line in _LINE.findall(text) if line]
    while lines:
        n = 1
        while n < len(lines) and count("".join(lines[: n + 1]).strip()) <= limit:
            n += 1
        whole = "".join(lines[:n])
        body = whole.strip()
        at = whole.find(body)
        yield from ((piece, is_open) for piece, is_open in _around(whole, at, body) if piece)
        del lines[:n]


def _around(whole: str, at: int, body: str) -> Iterator[tuple[str, bool]]:
    yield whole[:at], False
    yield body, True
    yield whole[at + len(body) :], False


def groups(
    segments: list[Segment], opened: list[Segment], room: int, need: Callable[[Segment], int], count: Count
) -> list[list[Segment]]:
    """Returns the open segments in runs that fit one canvas each, from left to right.

    `room` is the number of slots for gaps and the text between them; all gaps of a canvas are as large as the largest
    `need`. Segments of one line and of several do not share a canvas.
    """
    found: list[list[Segment]] = []
    at = {segment: index for index, segment in enumerate(segments)}
    n_between = 0
    for segment in opened:
        if found and found[-1][0].single_line == segment.single_line:
            last = found[-1][-1]
            between = "".join(each.text for each in segments[at[last] + 1 : at[segment]])
            n_more = count(between) if len(between) < room * _MAX_CHARACTERS else room
            largest = max(need(each) for each in (*found[-1], segment))
            if (len(found[-1]) + 1) * largest + n_between + n_more <= room:
                n_between += n_more
                found[-1].append(segment)
                continue
        found.append([segment])
        n_between = 0
    return found


_MAX_CHARACTERS = 16
"""Characters of a token at most, on average: a longer text need not be counted to know that it does not fit. Chosen."""


def parts_of(segments: list[Segment], group: list[Segment]) -> tuple[str, ...]:
    """Returns the text parts around the segments of a group, which are gaps between them."""
    parts, gaps = [""], set(group)
    for segment in segments:
        if segment in gaps:
            parts.append("")
        else:
            parts[-1] += segment.text
    return tuple(parts)
