"""The changes between two texts: small, in order, each for itself, and movable when the text around them moves."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from growth import LINEAR, growth
from midspan_server.hunks import Hunk, applied, hunks, rebased

TEXT = st.text(alphabet="ab ,\n", max_size=40)


@given(TEXT, TEXT)
def test_all_changes_together_give_the_new_text(old: str, new: str) -> None:
    assert applied(old, hunks(old, new)) == new


@given(TEXT, TEXT)
def test_changes_ascend_and_do_not_touch(old: str, new: str) -> None:
    found = hunks(old, new)
    assert all(a.end < b.start for a, b in pairwise(found))
    assert all(old[each.start : each.end] != each.text for each in found)


def test_only_the_words_that_differ_are_changed() -> None:
    old = "def f(a):\n    x = g(a, 1)\n    return x\n"
    new = "def f(a):\n    x = g(b, 1)\n    return y\n"
    assert [(old[each.start : each.end], each.text) for each in hunks(old, new)] == [("a", "b"), ("x", "y")]


def test_what_signs_of_one_line_keep_apart_is_one_change() -> None:
    assert hunks("f(a, b)\n", "f(c, d)\n") == [Hunk(2, 6, "c, d")]


@pytest.mark.parametrize("old", ["0, ", "0,\n", "a b\n\n"])
def test_repetition_takes_no_more_than_time_in_proportion(old: str) -> None:
    def compared(n: int) -> None:
        text = "a " + old * n
        assert applied(text, hunks(text, "b " + "1, " * 9 + old * (n // 2) + "c " + old * (n // 3))) != text

    assert growth(compared, 700) < LINEAR


def test_a_long_text_is_compared_where_it_differs() -> None:
    old = "0, " * 3_000 + "a, " + "0,\n" * 3_000
    at = old.index("a")
    assert hunks(old, old.replace("a", "b")) == [Hunk(at, at + 1, "b")]


def test_what_is_too_long_to_be_compared_is_one_change_and_the_next_is_compared() -> None:
    old = "a " + "0, " * 900 + "x\nkept\nb, c\n"
    new = "d " + "0, " * 600 + "y\nkept\nb, e\n"
    (long, short) = hunks(old, new)
    assert (long.start, old[short.start : short.end], short.text) == (0, "c", "e")


@given(TEXT, TEXT, TEXT, TEXT)
def test_changes_move_with_the_text_around_them(before: str, after: str, typed: str, new: str) -> None:
    old = before + "\nold words\n" + after
    at = len(before) + 1
    changes = [each.moved(at) for each in hunks("old words", new)]
    region = [(at, at + len("old words"))]
    wanted = before + "\n" + new + "\n" + after
    for text, expected in (
        (typed + "-" + old, typed + "-" + wanted),
        (old + "-" + typed, wanted + "-" + typed),
    ):
        moved = rebased(changes, region, old, text)
        assert moved is not None
        assert applied(text, moved) == expected


@pytest.mark.parametrize("now", ["a = new\n", "a = \n", "a = o-ld\n", "b = od\n"])
def test_changes_are_given_up_when_their_place_was_touched(now: str) -> None:
    assert rebased([Hunk(4, 7, "mine")], [(4, 7)], "a = old\n", now) is None


@pytest.mark.parametrize(
    "now", ["return w * passh\n", "return w * xpass\n", "return w * pass.y\n", "return w * (pass\n"]
)
def test_what_is_typed_right_before_or_behind_a_place_touches_it(now: str) -> None:
    assert rebased([Hunk(4, 8, "h")], [(4, 8)], "w * pass\n", now) is None


def test_lines_typed_above_a_line_do_not_touch_it_though_line_breaks_are_all_alike() -> None:
    assert rebased([Hunk(2, 5, "new")], [(2, 5)], "a\nold\n", "a\n\nold\n") == [Hunk(3, 6, "new")]
    assert rebased([Hunk(2, 5, "new")], [(2, 5)], "a\nold\n", "a\nold\n\n") == [Hunk(2, 5, "new")]


def test_a_place_without_text_is_touched_by_what_is_typed_there() -> None:
    assert rebased([Hunk(2, 2, "x")], [(2, 2)], "f()", "f(a)") is None
    assert rebased([Hunk(2, 2, "x")], [(2, 2)], "f()", "gf()") == [Hunk(3, 3, "x")]
