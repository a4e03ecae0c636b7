"""Reasons not to show what the engine offers: pure functions in one ordered list.

The suffix is pinned on the canvas, so a suggestion that repeats it should not exist: that filter counts failures of
the engine, it does not make up for them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from midspan_server.context import Context

Filter = Callable[[str, Context], str | None]
"""Takes the text of a suggestion and returns why it must not be shown, or None."""

_OPENER_OF = {")": "(", "]": "[", "}": "{"}
_CLOSER_OF = {opener: closer for closer, opener in _OPENER_OF.items()}
_UNCODED = re.compile(
    r'"""[\s\S]*?(?:"""|\Z)' r"|'''[\s\S]*?(?:'''|\Z)" r'|"(?:\\.|[^"\\\n])*"?' r"|'(?:\\.|[^'\\\n])*'?" r"|#[^\n]*"
)
"""Strings and comments of Python, closed or not; brackets in them say nothing about structure."""
_TOP_LEVEL = re.compile(r"^(?:@|def |class |async def )", re.MULTILINE)
_BRACKET = re.compile(r"[()\[\]{}]")
_WORDLESS = re.compile(r"[\W_]*")


def blank(text: str, context: Context) -> str | None:
    """Drops what nobody could see."""
    return None if text.strip() else "the suggestion is blank"


def repeats_what_follows(text: str, context: Context) -> str | None:
    """Drops a suggestion that is only a copy of the rest of the line, or else of the lines that follow.

    Brackets and punctuation alone are left to `unbalanced_closer`: one more of them may well be wanted.
    """
    if _WORDLESS.fullmatch(text):
        return None
    lines = [line.strip() for line in text.strip().split("\n")]
    rest = context.line_suffix.strip()
    following = [line.strip() for line in context.suffix.split("\n")[1:] if line.strip()]
    repeats = lines == [rest] if rest else lines == following[: len(lines)]
    return "the suggestion repeats what follows the cursor" if repeats else None


def unbalanced_closer(text: str, context: Context) -> str | None:
    """Drops a suggestion that closes a bracket which nothing before it opens, or which what follows closes."""
    if not any(closer in text for closer in _OPENER_OF):
        return None
    block = _current_block(context.prefix)
    before = _brackets(block)
    n_open = Counter[str]()
    for bracket in before:
        if bracket in _OPENER_OF:
            n_open[_OPENER_OF[bracket]] = max(n_open[_OPENER_OF[bracket]] - 1, 0)
        else:
            n_open[bracket] += 1
    n_before = n_open.copy()
    n_wanted = _n_unopened(_brackets(context.suffix))
    # Read together with what stands before: a string may begin there and end in the suggestion.
    for bracket in _brackets(block + text)[len(before) :]:
        opener = _OPENER_OF.get(bracket, bracket)
        n_open[opener] += 1 if bracket == opener else -1
        if n_open[opener] < 0:
            return f"the suggestion has a {bracket} that closes nothing"
    for opener, n in n_wanted.items():
        if n_open[opener] < n <= n_before[opener]:
            return f"the suggestion closes a {opener} that is closed after the cursor"
    return None


def unclosed_opener(text: str, context: Context) -> str | None:
    """Drops a suggestion that opens a bracket which neither it nor what follows closes."""
    block = _current_block(context.prefix)
    before = _brackets(block)
    opened = Counter[str]()
    for bracket in _brackets(block + text)[len(before) :]:
        opener = _OPENER_OF.get(bracket, bracket)
        opened[opener] = max(opened[opener] + (1 if bracket == opener else -1), 0)
    n_wanted = _n_unopened(_brackets(context.suffix))
    for opener, n in opened.items():
        n_open_before = max(before.count(opener) - before.count(_CLOSER_OF[opener]), 0)
        if n > max(n_wanted[opener] - n_open_before, 0):
            return f"the suggestion opens a {opener} that nothing closes"
    return None


FILTERS: tuple[Filter, ...] = (blank, repeats_what_follows, unbalanced_closer, unclosed_opener)


def reason_to_drop(text: str, context: Context) -> str | None:
    """Returns the first reason not to show a suggestion, or None."""
    return next((reason for judge in FILTERS if (reason := judge(text, context))), None)


def _current_block(prefix: str) -> str:
    """Returns the prefix from its last definition at the left margin on: a cut or broken start must not count."""
    starts = [found.start() for found in _TOP_LEVEL.finditer(prefix)]
    return prefix[starts[-1] :] if starts else prefix


def _brackets(code: str) -> list[str]:
    """Returns the brackets of a piece of code, in order, without those in strings and comments."""
    return _BRACKET.findall(_UNCODED.sub("", code))


def _n_unopened(brackets: list[str]) -> Counter[str]:
    """Returns, by opener, how many closers have none before them."""
    n_open, n_unopened = Counter[str](), Counter[str]()
    for bracket in brackets:
        opener = _OPENER_OF.get(bracket, bracket)
        n_open[opener] += 1 if bracket == opener else -1
        n_unopened[opener] = max(n_unopened[opener], -n_open[opener])
    return n_unopened
