"""A suggestion neither repeats a closing quote nor leaves a string open."""

from __future__ import annotations

import pytest

from filter_case import context_of, reason_of
from midspan_server.filters.quotes import quotes


@pytest.mark.parametrize(
    ("marked", "text", "reason"),
    [
        ('print("║")', 'done".upper() + x', "closed after the cursor"),
        ('print("║")', '"', "closed after the cursor"),
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


@pytest.mark.parametrize(
    ("marked", "text", "shown"),
    [
        ('print("║")', 'done"', "done"),
        ('print("║")', 'a")', "a"),
        ("d['║']", "key']", "key"),
        ('f("║", "b")', 'a", "b")', "a"),
        ('x = """║"""', 'a"""', "a"),
        ('a = 1\n"""One ║"""\nb = 2\n"""A slot\'s."""\n', 'of it."""', "of it."),
        ("print('║')", "it is \\'so\\'')", "it is \\'so\\'"),
    ],
)
def test_the_end_of_a_string_that_stands_there_already_is_cut(marked: str, text: str, shown: str) -> None:
    assert quotes(text, context_of(marked)) == shown
