"""A document in segments: what shares a canvas, and what stays as it is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from midspan_engine.segments import Segment, chunks, groups, parts_of

TEXT = st.text(alphabet="ab \n", max_size=60)


def words(text: str) -> int:
    return len(text.split())


@given(TEXT, st.integers(1, 6))
def test_chunks_put_together_are_the_text(text: str, limit: int) -> None:
    assert "".join(piece for piece, _ in chunks(text, limit, words)) == text


@given(TEXT, st.integers(1, 6))
def test_a_chunk_has_no_more_tokens_than_fit_unless_its_line_has(text: str, limit: int) -> None:
    for piece, is_open in chunks(text, limit, words):
        if is_open:
            assert piece == piece.strip()
            assert "\n" not in piece or words(piece) <= limit
        else:
            assert not piece.strip()


def document(*hidden: bool) -> list[Segment]:
    segments = [Segment("p")]
    for number, single_line in enumerate(hidden):
        segments += [Segment("x y", number, single_line), Segment(" b c ")]
    return segments


def grouped(segments: list[Segment], room: int) -> list[int]:
    opened = [segment for segment in segments if segment.gap is not None]
    return [len(group) for group in groups(segments, opened, room, lambda segment: 4, words)]


def test_gaps_share_a_canvas_as_long_as_they_fit_with_the_text_between_them() -> None:
    segments = document(True, True, True)
    assert grouped(segments, 16) == [3]
    assert grouped(segments, 15) == [2, 1]
    assert grouped(segments, 9) == [1, 1, 1]
    assert grouped(segments, 1) == [1, 1, 1]


def test_gaps_of_one_line_and_of_several_do_not_share_a_canvas() -> None:
    assert grouped(document(True, False, False, True), 100) == [1, 2, 1]


def test_the_parts_around_a_group_hold_what_the_other_gaps_hold() -> None:
    segments = document(True, True)
    assert parts_of(segments, [segments[3]]) == ("px y b c ", " b c ")
    assert parts_of(segments, [segments[1], segments[3]]) == ("p", " b c ", " b c ")
