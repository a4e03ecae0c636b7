"""Slips of the keyboard: what counts as one, and what may have been meant."""

from __future__ import annotations

import pytest

from midspan_engine.slips import is_slip, meant


@pytest.mark.parametrize(
    ("typed", "word"), [("nme", "name"), ("naame", "name"), ("nume", "name"), ("nmae", "name"), ("nam", "name")]
)
def test_one_letter_left_out_added_or_changed_and_two_swapped_are_a_slip(typed: str, word: str) -> None:
    assert is_slip(typed, word)
    assert is_slip(word, typed)


@pytest.mark.parametrize(
    ("one", "other"), [("name", "name"), ("abcd", "badc"), ("name", "named_"), ("loan", "Loan"), ("abc", "bca")]
)
def test_what_takes_more_than_one_key_is_none(one: str, other: str) -> None:
    assert not is_slip(one, other)


def test_what_was_meant_stands_in_the_document() -> None:
    assert meant("def f(name):\n    return ", "nmae", "\n") == ["name"]
    assert meant("def f(name):\n    return ", " nmae", " + name\n") == [" name"]
    assert meant("def f(title):\n    return ", "nmae", "\n") == []


def test_a_word_that_stands_there_twice_is_no_slip() -> None:
    assert meant("nmae = 1\nname = ", "nmae", "\n") == []


def test_of_a_word_that_goes_on_outside_those_parts_stay() -> None:
    assert meant("spec_version = 1\nx = spec", "_verson or", " 3") == ["_version or"]
    assert meant("retry_state = 1\nx = ", " retyr", "_state") == [" retry"]
    assert meant("retry_state = 1\nx = retyr", "_state", "") == []


def test_the_words_that_stand_there_most_come_first() -> None:
    assert meant("rows = []\nrow = 1\nrow = 2\n", "rowz", "") == ["row", "rows"]
