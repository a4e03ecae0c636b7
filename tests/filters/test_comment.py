"""A suggestion never turns the rest of its line into a comment."""

from __future__ import annotations

import pytest

from filter_case import context_of, reason_of
from midspan_server.filters.comment import comment


@pytest.mark.parametrize(("marked", "text"), [("f(║, b)\n", "a  # why"), ("x = ║ + 1\n", "'#' # one")])
def test_code_behind_the_cursor_is_never_commented_out(marked: str, text: str) -> None:
    assert "comments out" in str(reason_of(comment, marked, text))


@pytest.mark.parametrize(
    ("marked", "text"),
    [
        ("x = ║\n", "1  # one"),
        ("x = ║  # one\n", "2 # two"),
        ("f(║)\n", "'#'"),
        ("# say ║ it\n", "#1"),
        ("f(║)\n", "a"),
    ],
)
def test_other_comments_are_kept(marked: str, text: str) -> None:
    assert reason_of(comment, marked, text) is None


@pytest.mark.parametrize(
    ("text", "left"), [("1  #", "1"), ("1  # ", "1"), ("'#'  #", "'#'"), ("1  # #", "1  # #"), ("#", "")]
)
def test_a_comment_that_says_nothing_is_taken_off(text: str, left: str) -> None:
    assert comment(text, context_of("x = ║\n")) == left
