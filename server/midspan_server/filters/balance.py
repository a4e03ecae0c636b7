"""A suggestion neither repeats a closing bracket nor leaves one open."""

from __future__ import annotations

from midspan_server.context import Context
from midspan_server.filters.verdict import Dropped
from midspan_server.python_code import CLOSER_OF, OPENER_OF, brackets, unmatched


def balance(text: str, context: Context) -> str | Dropped:
    """Drops Python that closes a bracket which nothing opens or which what follows closes, or that leaves one open."""
    if not any(bracket in text for pair in OPENER_OF.items() for bracket in pair):
        return text
    before = brackets(context.block)
    # Read together with what stands before: a string may begin there and end in the suggestion.
    own = brackets(context.block + text)[len(before) :]
    reason = _closer_too_many(before, own, context) or _opener_too_many(before, own, context)
    return text if reason is None else Dropped(reason)


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
