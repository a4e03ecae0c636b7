"""A suggestion neither repeats a closing quote nor leaves a string open."""

from __future__ import annotations

import pytest

from filter_case import reason_of
from midspan_server.filters.quotes import quotes


@pytest.mark.parametrize(
    ("marked", "text", "reason"),
    [
        ('print("║")', 'done"', "closed after the cursor"),
        ("d['║']", "key'", "closed after the cursor"),
        ("x = ║", '"a', "nothing closes"),
        ("x = f(║)", "'a", "nothing closes"),
        ("def f():\n    ║\n    return 1\n", '"""Does it.', "nothing closes"),
        ('parts = [part for part in parts if part a║"]', 'nd "/"', "repeats a quote that follows"),
    ],
)
def test_a_quote_too_many_is_dropped(marked: str, text: str, reason: str) -> None:
    assert reason in str(reason_of(quotes, marked, text))


@pytest.mark.parametrize(
    ("marked", "text"),
    [
        ('print("║', 'done")'),
        ('print("║")', "it's"),
        ("x = ║", "'a' + \"b\""),
        ("x = ║'", "'a' + 'b"),
        ("def f():\n    ║\n    return 1\n", '"""Does it."""'),
        ('def f():\n    """Does ║\n    """\n', "it's best."),
        ("x = 1  # don't ║", "say 'no"),
    ],
)
def test_strings_that_end_are_kept(marked: str, text: str) -> None:
    assert reason_of(quotes, marked, text) is None
