"""Pinned parts and gaps keep their order, their tokens and their places."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from midspan_engine.canvas import lay_out
from midspan_engine.errors import InputError

HOLE, PAD = -1, -2
parts_and_sizes = st.lists(st.lists(st.integers(0, 99), max_size=6), min_size=2, max_size=5).flatmap(
    lambda parts: st.tuples(
        st.just(parts), st.lists(st.integers(0, 6), min_size=len(parts) - 1, max_size=len(parts) - 1)
    )
)


@given(drawn=parts_and_sizes, n_slots=st.integers(1, 60))
def test_parts_stand_around_their_gaps_and_only_the_last_is_cut(
    drawn: tuple[list[list[int]], list[int]], n_slots: int
) -> None:
    parts, sizes = drawn
    assume(sum(map(len, parts[:-1])) + sum(sizes) <= n_slots)
    canvas = lay_out(parts, sizes, n_slots, hole=HOLE, pad=PAD)
    assert len(canvas.ids) == n_slots
    expected: list[int] = []
    for part, size, gap in zip(parts, sizes, canvas.gaps, strict=False):
        expected += part
        assert gap == range(len(expected), len(expected) + size)
        expected += [HOLE] * size
    head = parts[-1][: n_slots - len(expected)]
    expected += head
    assert list(canvas.ids) == expected + [PAD] * (n_slots - len(expected))
    assert [canvas.ids[slot] for slot in canvas.gap_slots] == [HOLE] * sum(sizes)


@given(drawn=parts_and_sizes, n_slots=st.integers(1, 40))
def test_gaps_that_do_not_fit_are_refused_with_both_numbers(
    drawn: tuple[list[list[int]], list[int]], n_slots: int
) -> None:
    parts, sizes = drawn
    needed = sum(map(len, parts[:-1])) + sum(sizes)
    assume(needed > n_slots)
    with pytest.raises(InputError, match=f"{needed} slots.*{n_slots}"):
        lay_out(parts, sizes, n_slots, hole=HOLE, pad=PAD)
