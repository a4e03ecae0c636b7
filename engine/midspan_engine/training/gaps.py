"""Which stretch of a Python text an editor would ask for: the gaps that training and evaluation cut."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping

Gap = tuple[int, int]
"""Start and end of a gap, in characters."""

DEFAULT_MIX: Mapping[str, float] = {
    "rest_of_line": 0.36,
    "arguments": 0.14,
    "right_hand_side": 0.12,
    "condition": 0.08,
    "whole_line": 0.10,
    "lines": 0.08,
    "span": 0.12,
}
"""Shares of the kinds of gap: most requests of an editor come while a line is being typed. Chosen, not tuned."""

_OPEN = re.compile(r"[(\[{]")
_ASSIGN = re.compile(r"(?<![=!<>])= ?(?!=)")
_CONDITION = re.compile(r"\b(?:if|elif|while|return|in|and|or|not|for|assert) ")
_CLOSERS = {"(": ")", "[": "]", "{": "}"}


def cut(kind: str, text: str, at: int, rng: random.Random) -> Gap | None:
    """Returns a gap of the given kind in the line around character `at`, or None when the line has none."""
    start = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    if end < 0 or not text[start:end].strip():
        return None
    first = start + len(text[start:end]) - len(text[start:end].lstrip())
    return _KINDS[kind](text, first, end, rng)


def draw_kind(rng: random.Random, mix: Mapping[str, float]) -> str:
    """Draws a kind of gap by its share."""
    return rng.choices(list(mix), list(mix.values()))[0]


def _rest_of_line(text: str, first: int, end: int, rng: random.Random) -> Gap | None:
    return rng.randrange(first, end), end


def _whole_line(text: str, first: int, end: int, rng: random.Random) -> Gap | None:
    return first, end


def _lines(text: str, first: int, end: int, rng: random.Random) -> Gap | None:
    line_end = end
    for _ in range(rng.randint(1, 5)):
        following = text.find("\n", end + 1)
        if following < 0:
            break
        end = following
    return rng.choice([first, rng.randrange(first, line_end)]), end


def _span(text: str, first: int, end: int, rng: random.Random) -> Gap | None:
    start, stop = sorted((rng.randrange(first, end), rng.randrange(first, end + 1)))
    return (start, stop) if start < stop else None


def _arguments(text: str, first: int, end: int, rng: random.Random) -> Gap | None:
    opening = [m.start() for m in _OPEN.finditer(text, first, end)]
    if not opening:
        return None
    bracket = rng.choice(opening)
    closer, depth = _CLOSERS[text[bracket]], 0
    for index in range(bracket, end):
        depth += (text[index] == text[bracket]) - (text[index] == closer)
        if depth == 0:
            inside = bracket + 1
            start = inside if rng.random() < 0.6 else rng.randrange(inside, index + 1)
            return (start, index) if start < index else None
    return None


def _after(pattern: re.Pattern[str]) -> Callable[[str, int, int, random.Random], Gap | None]:
    def find(text: str, first: int, end: int, rng: random.Random) -> Gap | None:
        places = [m.end() for m in pattern.finditer(text, first, end)]
        if not places:
            return None
        stop = end - 1 if text[end - 1] == ":" and rng.random() < 0.5 else end
        start = rng.choice(places)
        return (start, stop) if start < stop else None

    return find


_KINDS: Mapping[str, Callable[[str, int, int, random.Random], Gap | None]] = {
    "rest_of_line": _rest_of_line,
    "arguments": _arguments,
    "right_hand_side": _after(_ASSIGN),
    "condition": _after(_CONDITION),
    "whole_line": _whole_line,
    "lines": _lines,
    "span": _span,
}
