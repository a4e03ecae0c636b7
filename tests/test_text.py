"""The text store against a plain reference that does everything the slow way."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midspan_engine.errors import InputError
from midspan_server.text import MAX_CHARACTERS, Edit, Encoding, Position, Snapshot, TextDocument, snapshot

ENCODINGS: tuple[Encoding, ...] = ("utf-8", "utf-16", "utf-32")
# Astral characters, every line break of the protocol, and characters that only splitlines() takes for one.
PIECES = st.sampled_from(
    ["a", "b_1", " ", "\t", "\n", "\r", "\r\n", "\f", "\x85", "\u2028", "é", "漢", "😀", "\v", "𝒳"]
)
TEXTS = st.lists(PIECES, max_size=24).map("".join)


def reference_starts(text: str) -> list[int]:
    starts = [0]
    for at in range(1, len(text) + 1):
        if text[at - 1] == "\n" or (text[at - 1] == "\r" and text[at : at + 1] != "\n"):
            starts.append(at)
    return starts


def reference_line(text: str, line: int) -> str:
    starts = [*reference_starts(text), len(text)]
    return text[starts[line] : starts[line + 1]].rstrip("\r\n")


def units(text: str, encoding: Encoding) -> int:
    width = {"utf-8": 1, "utf-16": 2, "utf-32": 4}[encoding]
    return len(text.encode({"utf-8": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}[encoding])) // width


def reference_offset(text: str, position: Position, encoding: Encoding) -> int:
    line, n = reference_line(text, position.line), 0
    while n < len(line) and units(line[: n + 1], encoding) <= position.character:
        n += 1
    return reference_starts(text)[position.line] + n


def starts_of(snap: Snapshot) -> list[int]:
    return [snap.lines.start(line) for line in range(len(snap.lines))]


@given(TEXTS)
def test_lines_end_only_where_the_protocol_says(text: str) -> None:
    assert starts_of(snapshot(text)) == reference_starts(text)


@given(TEXTS, st.sampled_from(ENCODINGS), st.data())
def test_positions_agree_with_the_reference(text: str, encoding: Encoding, data: st.DataObject) -> None:
    snap = snapshot(text, encoding=encoding)
    position = Position(data.draw(st.integers(0, len(snap.lines) - 1)), data.draw(st.integers(0, 40)))
    assert snap.offset_at(position) == reference_offset(text, position, encoding)


@given(TEXTS, st.sampled_from(ENCODINGS), st.data())
def test_an_offset_comes_back_from_its_position(text: str, encoding: Encoding, data: st.DataObject) -> None:
    snap = snapshot(text, encoding=encoding)
    offset = data.draw(st.integers(0, len(text)))
    at_line_end = text[offset - 1 : offset + 1] == "\r\n"  # inside a CRLF: the line ends before it
    assert snap.offset_at(snap.position_at(offset)) == offset - at_line_end


@settings(max_examples=300)
@given(TEXTS, st.sampled_from(ENCODINGS), st.data())
def test_edits_agree_with_the_reference(text: str, encoding: Encoding, data: st.DataObject) -> None:
    document = TextDocument("file:///a.py", "python", snapshot(text, 1, encoding))
    for version in range(2, data.draw(st.integers(2, 7))):
        edits = []
        for _ in range(data.draw(st.integers(1, 3))):
            n_lines = len(reference_starts(text))
            ends = [Position(data.draw(st.integers(0, n_lines - 1)), data.draw(st.integers(0, 20))) for _ in range(2)]
            start, end = sorted(ends, key=lambda at: reference_offset(text, at, encoding))
            new = data.draw(TEXTS)
            edits.append(Edit(new, start, end))
            a, b = (reference_offset(text, at, encoding) for at in (start, end))
            text = text[:a] + new + text[b:]
        before = document.snapshot
        kept = (before.text, starts_of(before))
        document.change(edits, version)
        assert document.snapshot.text == text
        assert document.snapshot.version == version
        assert starts_of(document.snapshot) == reference_starts(text)
        assert (before.text, starts_of(before)) == kept


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5), TEXTS), max_size=12), TEXTS)
def test_the_line_table_follows_any_order_of_edits(edits: list[tuple[int, int, str]], text: str) -> None:
    snap = snapshot(text)
    for at, n, new in edits:
        start = min(at, len(text))
        end = min(start + n, len(text))
        text = text[:start] + new + text[end:]
        snap = Snapshot(text, 0, snap.lines.edited(text, start, end, len(new)), "utf-16")
        assert starts_of(snap) == reference_starts(text)
        assert [snap.lines.line_of(o) for o in range(len(text) + 1)] == [
            sum(s <= o for s in reference_starts(text)) - 1 for o in range(len(text) + 1)
        ]


def test_a_crlf_split_by_an_edit_becomes_two_lines() -> None:
    snap = snapshot("a\r\nb")
    split = Snapshot("a\rX\nb", 1, snap.lines.edited("a\rX\nb", 2, 2, 1), "utf-16")
    assert starts_of(split) == [0, 2, 4]
    joined = Snapshot("a\r\nb", 2, split.lines.edited("a\r\nb", 2, 3, 0), "utf-16")
    assert starts_of(joined) == [0, 3]


def test_a_position_beyond_its_line_means_the_end_of_the_line() -> None:
    assert snapshot("ab\r\nc").offset_at(Position(0, 99)) == 2


def test_a_position_inside_a_character_means_its_start() -> None:
    assert snapshot("a😀b").offset_at(Position(0, 2)) == 1
    assert snapshot("é", encoding="utf-8").offset_at(Position(0, 1)) == 0


def test_a_line_outside_the_document_is_an_error_that_names_it() -> None:
    with pytest.raises(InputError, match="line 8 is outside the document, which has 2 lines"):
        snapshot("a\nb").offset_at(Position(7, 0))


def test_the_line_after_the_last_ends_a_whole_document_edit() -> None:
    assert snapshot("a\nb").edited(Edit("c", Position(0, 0), Position(2, 0)), 1).text == "c"


def test_a_document_is_out_of_step_until_its_whole_text_comes_again() -> None:
    document = TextDocument("file:///a.py", "python", snapshot("a\nb", 1))
    with pytest.raises(InputError):
        document.change([Edit("x", Position(9, 0), Position(9, 1))], 2)
    document.change([Edit("x", Position(0, 0), Position(0, 0))], 3)
    assert not document.is_in_step
    assert document.snapshot.text == "a\nb"
    document.change([Edit("whole")], 4)
    assert document.is_in_step
    assert document.snapshot.text == "whole"


def test_a_text_that_is_too_large_is_not_kept_until_a_smaller_one_comes() -> None:
    large = "x" * (MAX_CHARACTERS + 1)
    document = TextDocument.opened("file:///a.py", "python", large, 1, "utf-16", ())
    document.change([Edit("y", Position(0, 0), Position(0, 0))], 2)
    assert (document.snapshot.text, document.snapshot.version, document.n_unread) == ("", 2, len(large))
    document.change([Edit("small"), Edit("er", Position(0, 5), Position(0, 5))], 3)
    assert (document.snapshot.text, document.n_unread) == ("smaller", 0)


def test_halves_of_a_character_that_meet_are_joined() -> None:
    snap = snapshot("a\ud83d").edited(Edit("\ude00", Position(0, 2), Position(0, 2)), 1)
    assert snap.text == "a😀"


def test_halves_of_characters_count_as_one_unit_of_utf_16() -> None:
    assert snapshot("\ud83dab").offset_at(Position(0, 2)) == 2


def best_of(n: int, work: Callable[[], object]) -> float:
    times = []
    for _ in range(n):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def test_an_edit_of_a_long_file_costs_a_fraction_of_reading_it_anew() -> None:
    text = "x = 1  # hello\n" * 70_000
    snap = snapshot(text)
    at = snap.position_at(len(text) // 2)
    snap = snap.edited(Edit("y", at, at), 1)  # typing goes on where the last edit was
    assert best_of(7, lambda: snap.edited(Edit("y", at, at), 2)) * 2 < best_of(7, lambda: snapshot(text))


def test_an_edit_of_a_line_of_5_mb_costs_a_few_copies_of_it() -> None:
    text = "x" * 5_000_000
    snap = snapshot(text)
    at = Position(0, 2_500_000)
    edited = best_of(7, lambda: snap.edited(Edit("y", at, at), 1))
    assert edited < 10 * best_of(7, lambda: "".join((text[:2_500_000], "y", text[2_500_000:])))
