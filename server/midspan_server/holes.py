"""The holes of a text: call arguments that are empty, bodies that are stubs, and the marker that the user writes."""

from __future__ import annotations

import re

from midspan_server.python_code import uncoded_spans
from midspan_server.stretch import Stretch

NO_HOLES = "there is no hole here: no empty call, no body of ... or pass, and no {marker}"

MARKER = "___"
"""What nobody writes for anything else: a name that only says "something is missing here"."""

STUB = re.compile(r"(?:\.\.\.|pass)[ \t]*(?=$|#|\r|\n)")
"""A body that stands for one still to be written."""

_BODY = re.compile(r"^([ \t]+)(?:\.\.\.|pass)(?=[ \t]*$)", re.MULTILINE)
_INLINE_BODY = re.compile(r":[ \t]+(" + STUB.pattern + ")", re.MULTILINE)
_EMPTY_CALL = re.compile(r"(?<=[\w\])])\([ \t]*\)")
_DEFINITION = re.compile(r"\b(?:def|class)\s+\w+\Z")


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
        hole = next((each for each in known if each.start <= at <= each.end), Stretch(at, at))
        holes[hole.start] = hole
    return [holes[start] for start in sorted(holes)]


def _python_holes(text: str, start: int, end: int) -> list[Stretch]:
    hidden = uncoded_spans(text)

    def is_code(at: int) -> bool:
        return not any(first <= at < last for first, last in hidden)

    found = [Stretch(each.start() + len(each[1]), each.end(), False) for each in _BODY.finditer(text, start, end)]
    found += [Stretch(*each.span(1)) for each in _INLINE_BODY.finditer(text, start, end)]
    for call in _EMPTY_CALL.finditer(text, start, end):
        if not _DEFINITION.search(text, max(call.start() - 200, 0), call.start()):
            found.append(Stretch(call.start() + 1, call.end() - 1))
    return [hole for hole in found if is_code(hole.start)]


def _marker(marker: str) -> re.Pattern[str]:
    """Returns the pattern of a marker that is no part of a longer word."""
    left, right = (r"(?<!\w)" if marker[:1].isidentifier() else ""), (r"(?!\w)" if marker[-1:].isidentifier() else "")
    return re.compile(left + re.escape(marker) + right)
