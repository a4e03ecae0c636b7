"""What the document repeats."""

from __future__ import annotations

import pytest
import torch

from midspan_engine.repeats import MAX_MATCH, Repeats

END, BREAK = 5, 9
WEIGHTS = (0.1, 0.2, 0.4)


def repeats(before: list[int], after: list[int]) -> Repeats:
    return Repeats(before, after, end=END, breaks=frozenset({BREAK}), weights=WEIGHTS)


def test_the_longest_match_decides_what_follows() -> None:
    #                 11 12 13 -> 20,  2 12 13 -> 21,  3 13 -> 22
    document = repeats([11, 12, 13, 20, 2, 12, 13, 21, 3, 13, 22, 11, 12], [])
    assert document.following([13])[0] == 3
    assert document.following([13])[1].tolist() == [20]
    assert document.following([40, 12, 13])[1].tolist() == [20, 21]


def test_text_behind_the_gap_counts_too_and_no_match_runs_across_it() -> None:
    document = repeats([30, 31], [31, 32, 40])
    length, following = document.following([])
    assert (length, following.tolist()) == (1, [32])


def test_a_text_that_repeats_nothing_has_no_opinion() -> None:
    p = torch.full((1, 50), 0.02)
    assert repeats([30, 31], [32]).following([])[0] == 0
    assert torch.equal(repeats([30, 31], [32]).mix(p.clone(), [[]]), p)
    assert repeats([], []).following([])[0] == 0


def test_a_match_is_never_longer_than_is_said() -> None:
    assert repeats(list(range(20, 49)) * 2, []).following([])[0] == MAX_MATCH


def test_where_the_repeated_text_goes_on_like_the_suffix_the_gap_ends() -> None:
    assert repeats([20, 21, 41, 42, 20], [41, 42, 43]).following([21])[1].tolist() == [END]
    assert repeats([20, 21, 41, 50, 20], [41, 42, 43]).following([21])[1].tolist() == [41]
    assert repeats([20, 21, BREAK, 50, 20], [BREAK, 42]).following([21])[1].tolist() == [END]


@pytest.mark.parametrize(("left", "weight"), [([7], 0.1), ([8, 7], 0.2), ([6, 8, 7], 0.4), ([6, 6, 8, 7], 0.4)])
def test_longer_matches_weigh_more(left: list[int], weight: float) -> None:
    document = repeats([6, 6, 8, 7, 30, 1], [])
    p = torch.full((1, 50), 0.02)
    mixed = document.mix(p, [left])
    assert float(mixed[0, 30]) == pytest.approx(0.02 * (1 - weight) + weight)
    assert float(mixed.sum()) == pytest.approx(1)


def test_a_draft_goes_on_where_the_last_longest_match_did_and_stops_where_the_gap_would_end() -> None:
    document = repeats([7, 8, 30, 31, 9, 7, 8, 40, 41, 42, 50, 51, 60, 7], [50, 51, 52])
    assert document.draft([8], 2) == [40, 41]
    assert document.draft([8], 6) == [40, 41, 42]
    assert document.draft([99], 6) == []
    assert repeats([60, 61], []).draft([60], 6) == [61], "and never into the gap itself"
