"""The changes between two texts: small, in order, each for itself, and movable when the text around them moves."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def test_a_place_without_text_is_touched_by_what_is_typed_there() -> None:
    assert rebased([Hunk(2, 2, "x")], [(2, 2)], "f()", "f(a)") is None
    assert rebased([Hunk(2, 2, "x")], [(2, 2)], "f()", "gf()") == [Hunk(3, 3, "x")]
