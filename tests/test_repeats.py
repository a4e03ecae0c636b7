"""What the document repeats."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from midspan_engine.repeats import Repeats, Source
from midspan_engine.texts import MAX_MATCH, Texts

END, BREAK = 5, 9
WEIGHTS = (0.1, 0.2, 0.4)


def repeats(before: list[int], after: list[int], beside: Source | None = None) -> Repeats:
    return Repeats(before, after, end=END, breaks=frozenset({BREAK}), weights=WEIGHTS, beside=beside)


def own(document: Repeats, left: list[int]) -> tuple[int, list[int]]:
    length, following = document.following(left)[-1]
    return length, following.tolist()


def test_the_longest_match_decides_what_follows() -> None:
    #                 11 12 13 -> 20,  2 12 13 -> 21,  3 13 -> 22
    document = repeats([11, 12, 13, 20, 2, 12, 13, 21, 3, 13, 22, 11, 12], [])
    assert own(document, [13]) == (3, [20])
    assert own(document, [40, 12, 13]) == (2, [20, 21])


def test_text_behind_the_gap_counts_too_and_no_match_runs_across_it() -> None:
    document = repeats([30, 31], [31, 32, 40])
    assert own(document, []) == (1, [32])


def test_a_text_that_repeats_nothing_has_no_opinion() -> None:
    p = torch.full((1, 50), 0.02)
    assert own(repeats([30, 31], [32]), []) == (0, [])
    assert torch.equal(repeats([30, 31], [32]).mix(p.clone(), [[]]), p)
    assert own(repeats([], []), []) == (0, [])


def test_a_match_is_never_longer_than_is_said() -> None:
    assert own(repeats(list(range(20, 49)) * 2, []), [])[0] == MAX_MATCH


def test_where_the_repeated_text_goes_on_like_the_suffix_the_gap_ends() -> None:
    assert own(repeats([20, 21, 41, 42, 20], [41, 42, 43]), [21])[1] == [END]
    assert own(repeats([20, 21, 41, 50, 20], [41, 42, 43]), [21])[1] == [41]
    assert own(repeats([20, 21, BREAK, 50, 20], [BREAK, 42]), [21])[1] == [END]


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


def beside(*texts: list[int], but: range = range(0), weights: tuple[float, ...] = (0.0, 0.5)) -> Source:
    return Source(Texts(texts, is_indexed=True), but, weights)


def test_other_files_have_an_opinion_too_and_the_document_the_last_word() -> None:
    document = repeats([8, 7, 30, 1, 8], [], beside([8, 7, 40], [50, 51]))
    p = torch.full((1, 60), 0.02)
    mixed = document.mix(p, [[7]])[0]
    assert float(mixed[40]) == pytest.approx((0.02 * 0.5 + 0.5) * (1 - 0.2))
    assert float(mixed[30]) == pytest.approx(0.02 * 0.5 * (1 - 0.2) + 0.2)


def test_no_match_runs_from_one_file_into_another() -> None:
    texts = Texts([[1, 2], [3, 4]], is_indexed=True)
    assert texts.matches([2])[0] == 0, "nothing follows it in its file"
    length, ends = texts.matches([2, 3])
    assert (length, ends.tolist()) == (1, [3])


def test_an_index_finds_what_a_search_finds() -> None:
    rng = np.random.default_rng(3)
    texts = [rng.integers(0, 6, 40) for _ in range(5)]
    plain, indexed = Texts(texts), Texts(texts, is_indexed=True)
    for _ in range(200):
        left = rng.integers(0, 7, rng.integers(1, 6)).tolist()
        length, ends = plain.matches(left, range(41, 82))
        assert indexed.matches(left, range(41, 82))[0] == length
        assert sorted(indexed.matches(left, range(41, 82))[1]) == ends.tolist()
        assert not [end for end in ends if 41 <= end < 82]


def test_a_draft_comes_from_where_the_match_is_longest() -> None:
    document = repeats([8, 7, 30, 31, 1, 6, 8], [], beside([6, 8, 7, 40, 41], [8, 7, 50]))
    assert document.draft([7], 2) == [40, 41]
    assert repeats([6, 8, 7, 30, 31, 1, 6, 8], [], beside([8, 7, 40, 41])).draft([7], 2) == [30, 31]
    assert repeats([8], [], beside([8, 7, 40])).draft([7], 6) == [40], "and never into the next file"


def test_where_another_file_goes_on_like_the_suffix_the_gap_ends() -> None:
    assert repeats([20], [41, 42, 43], beside([20, 21, 41, 42])).following([21])[0][1].tolist() == [END]
