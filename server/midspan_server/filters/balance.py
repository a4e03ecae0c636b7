"""A suggestion neither repeats a closing bracket nor leaves one open."""

from __future__ import annotations

import re
from collections.abc import Iterator

from midspan_server.context import Context
from midspan_server.filters.verdict import Dropped
from midspan_server.python_code import CLOSER_OF, OPENER_OF, brackets, unmatched

_SIGN = re.compile(r"""[\w"'()\[\]{}]""")
"""Words, quotes and brackets; any other sign, such as a colon, goes with the closer before it."""


def balance(text: str, context: Context) -> str | Dropped:
    """Cuts closers off the end of Python that what follows closes, and drops what closes or leaves open another."""
    if not any(bracket in text for pair in OPENER_OF.items() for bracket in pair):
        return text
    before = brackets(context.block)
    if (reason := _fault(text, before, context)) is None:
        return text
    for head in _without_repeats(text, context):
        if _fault(head, before, context) is None:
            return head
    return Dropped(reason)


def _fault(text: str, before: list[str], context: Context) -> str | None:
    # Read together with what stands before: a string may begin there and end in the suggestion.
    own = brackets(context.block + text)[len(before) :]
    return _closer_too_many(before, own, context) or _opener_too_many(before, own, context)


def _without_repeats(text: str, context: Context) -> Iterator[str]:
    """Yields what stands before a text's last closer, before the last two and so on, where what follows has them too
    and only signs stand behind them.
    """
    n_wanted, _ = unmatched(brackets(context.suffix))
    for found in reversed(list(_SIGN.finditer(text))):
        closer, head = found[0], text[: found.start()].rstrip()
        if closer not in OPENER_OF:
            return
        if head and n_wanted[OPENER_OF[closer]]:
            yield head


def _closer_too_many(before: list[str], own: list[str], context: Context) -> str | None:
    _, n_before = unmatched(before)
    unopened, n_open = unmatched([*n_before.elements(), *own])
    if unopened:
        return f"the suggestion has a {CLOSER_OF[next(iter(unopened))]} that closes nothing"
    n_wanted, _ = unmatched(brackets(context.suffix))
    n_in_line, _ = unmatched(brackets(context.line_suffix))
    for opener, n in n_wanted.items():
        # what was open before, or what the text itself opens and closes although the line goes on to close it
        is_own = n_open[opener] < n_in_line[opener] and CLOSER_OF[opener] in own
        if n_open[opener] < n <= n_before[opener] or is_own:
            return f"the suggestion closes a {opener} that is closed after the cursor"
    return None


def _opener_too_many(before: list[str], own: list[str], context: Context) -> str | None:
    n_wanted, _ = unmatched(brackets(context.suffix))
    _, n_left = unmatched(own)
    for opener, n in n_left.items():
        n_open_before = max(before.count(opener) - before.count(CLOSER_OF[opener]), 0)
        if n > max(n_wanted[opener] - n_open_before, 0):
            return f"the suggestion opens a {opener} that nothing closes"
    return None
