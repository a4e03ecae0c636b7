"""The holes of a text: call arguments that are empty, bodies that are stubs, and the marker that the user writes."""

from __future__ import annotations

import re
from bisect import bisect, bisect_left
from collections.abc import Iterable
from keyword import kwlist

from midspan_server.python_code import LONGEST_TARGET, annotates, closers, uncoded_spans
from midspan_server.stretch import Stretch

NO_HOLES = "there is no hole here: no empty call, no body of ... or pass, and no {marker}"

MARKER = "___"
"""What nobody writes for anything else: a name that only says "something is missing here"."""

STUB = re.compile(r"(?:\.\.\.|pass)(?=[ \t]*(?:$|#|\r|\n))")
"""A body that stands for one still to be written."""

_BODY = re.compile(r"(?<!\\\n)^[ \t]+(" + STUB.pattern + ")", re.MULTILINE)
_INLINE_BODY = re.compile(r":[ \t]+(" + STUB.pattern + ")", re.MULTILINE)
_EMPTY_CALL = re.compile(r"(?<=[\w\])])\(([ \t]*)\)")
_WIDTH = max(map(len, kwlist))
_KEYWORD = re.compile(rf"\b(?:{'|'.join(kwlist)})\Z")
_DEFINITION = re.compile(r"\b(?:def|class)(?:\s|\\\n)+\w+")


def find_holes(text: str, start: int, end: int, marker: str = MARKER, language: str = "python") -> list[Stretch]:
    """Returns the holes between two offsets of a text with LF line ends, from left to right.

    Markers count everywhere, also in strings and comments; the others in Python only, where code stands.
    """
    found = [Stretch(each.start(), each.end()) for each in _marker(marker).finditer(text, start, end)]
    if language == "python":
        found += _python_holes(text, start, end)
    holes: list[Stretch] = []
    for hole in sorted(found, key=lambda hole: (hole.start, hole.end)):
        if not holes or hole.start >= holes[-1].end:
            holes.append(hole)
    return holes


def holes_at(text: str, offsets: list[int], marker: str = MARKER, language: str = "python") -> list[Stretch]:
    """Returns the holes at explicit places: the hole that a place touches, or an empty one."""
    known = find_holes(text, 0, len(text), marker, language)
    holes: dict[int, Stretch] = {}
    for at in offsets:
        k = bisect_left(known, at, key=lambda hole: hole.end)
        hole = known[k] if k < len(known) and known[k].start <= at else Stretch(at, at)
        holes[hole.start] = hole
    return [holes[start] for start in sorted(holes)]


def _python_holes(text: str, start: int, end: int) -> list[Stretch]:
    hidden, closed = uncoded_spans(text), closers(text)
    bracketed = _outermost(closed.items())
    bodies = [Stretch(*each.span(1), False) for each in _BODY.finditer(text, start, end)]
    bodies += [
        Stretch(*each.span(1))
        for each in _INLINE_BODY.finditer(text, start, end)
        if not annotates(text[_statement_start(text, each.start(), bracketed) : each.start()])
    ]
    names = [each.end() for each in _DEFINITION.finditer(text)]
    defined = {closed[at] + 1 if at in closed and text[at] == "[" else at for at in names}
    calls = [
        Stretch(*call.span(1))
        for call in _EMPTY_CALL.finditer(text, start, end)
        if call.start() not in defined and not _KEYWORD.search(text, max(call.start() - _WIDTH, 0), call.start())
    ]
    found = [body for body in bodies if not _lies_in(bracketed, body.start)] + calls
    return [hole for hole in found if not _lies_in(hidden, hole.start)]


def _statement_start(text: str, at: int, bracketed: list[tuple[int, int]]) -> int:
    """Returns where the line begins that an offset stands in, with those above it that it continues."""
    start = text.rfind("\n", 0, at) + 1
    while at - start <= LONGEST_TARGET:
        k = bisect(bracketed, start, key=lambda span: span[0])
        if k and bracketed[k - 1][0] < start <= bracketed[k - 1][1]:
            start = text.rfind("\n", 0, bracketed[k - 1][0]) + 1
        elif text.endswith("\\\n", 0, start):
            start = text.rfind("\n", 0, start - 1) + 1
        else:
            break
    return start


def _outermost(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns spans without those that begin in another, from left to right."""
    kept: list[tuple[int, int]] = []
    for span in sorted(spans):
        if not kept or span[0] >= kept[-1][1]:
            kept.append(span)
    return kept


def _lies_in(spans: list[tuple[int, int]], at: int) -> bool:
    """Says whether one of the spans, which ascend and do not overlap, holds an offset."""
    k = bisect(spans, at, key=lambda span: span[0])
    return k > 0 and at < spans[k - 1][1]


def _marker(marker: str) -> re.Pattern[str]:
    """Returns the pattern of a marker that is no part of a longer word."""
    left, right = (r"(?<!\w)" if marker[:1].isidentifier() else ""), (r"(?!\w)" if marker[-1:].isidentifier() else "")
    return re.compile(left + re.escape(marker) + right)
