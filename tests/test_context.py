"""Contexts: what the engine is shown of a file, written with `║` for the cursor."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midspan_engine.errors import InputError
from midspan_server.asking import fill_of
from midspan_server.context import (
    MAX_LINE,
    MAX_PREFIX,
    MAX_SUFFIX,
    PREFIX_JUMP,
    Around,
    Context,
    Selected,
    context_at,
)
from midspan_server.settings import Settings, Trigger
from midspan_server.text import Position, snapshot


def context(marked: str, trigger: Trigger = "automatic", selected: Selected | None = None) -> Context:
    return context_at(snapshot(marked.replace("║", "")), marked.index("║"), trigger, selected)


def test_a_context_holds_both_sides_and_both_halves_of_the_line() -> None:
    found = context("def f(x):\n    return ║ + 1\n\ny = 2\n")
    assert found.prefix == "def f(x):\n    return "
    assert found.suffix == " + 1\n\ny = 2\n"
    assert (found.line_prefix, found.line_suffix) == ("    return ", " + 1")


@pytest.mark.parametrize("newline", ["\r\n", "\r"])
def test_the_engine_sees_line_feeds_only(newline: str) -> None:
    found = context(newline.join(["a = 1", "b = ║2", "c = 3"]))
    assert (found.prefix, found.suffix) == ("a = 1\nb = ", "2\nc = 3")
    assert (found.line_prefix, found.line_suffix) == ("b = ", "2")


def test_form_feeds_do_not_end_a_line() -> None:
    assert context("a\f b║ \u2028c\nd").line_prefix == "a\f b"
    assert context("a\f b║ \u2028c\nd").line_suffix == " \u2028c"


def test_halves_of_characters_never_reach_the_wire() -> None:
    found = context("x = '\ud83d' + ║'\ude00'")
    (found.prefix + found.suffix).encode()


def test_a_selected_completion_item_is_part_of_the_prefix_and_of_what_is_replaced() -> None:
    found = context("import o║\nx", selected=Selected(Position(0, 7), Position(0, 8), "os.path"))
    assert found.prefix == "import os.path"
    assert (found.start, found.end, found.selected, found.suffix) == (7, 8, "os.path", "\nx")


@pytest.mark.parametrize(("line", "start", "end"), [(0, 0, 3), (1, 3, 5), (2, 0, 1)])
def test_a_selected_item_elsewhere_is_left_aside(line: int, start: int, end: int) -> None:
    selected = Selected(Position(line, start), Position(line, end), "b")
    found = context("a = 1\nb║ = 2\nc = 3", selected=selected)
    assert (found.start, found.end, found.selected) == (7, 7, "")


def test_a_long_prefix_is_cut_at_a_line_start() -> None:
    found = context("".join(f"line = {n}\n" for n in range(9000)) + "║")
    assert MAX_PREFIX - PREFIX_JUMP - 20 < len(found.prefix) <= MAX_PREFIX
    assert found.prefix.startswith("line = ")


def test_the_cut_of_a_growing_file_moves_only_in_jumps() -> None:
    text = "".join(f"line = {n}\n" for n in range(4000))
    starts = []
    for _ in range(3 * PREFIX_JUMP // 64):
        text += "x" * 63 + "\n"
        found = context(text + "║")
        starts.append(len(text) - len(found.prefix))
    moves = [b - a for a, b in pairwise(starts) if a != b]
    assert 1 <= len(moves) <= 3
    assert all(abs(move - PREFIX_JUMP) < 128 for move in moves)


def test_the_longest_line_is_cut_hard() -> None:
    line = snapshot("x" * MAX_LINE)
    assert MAX_PREFIX - PREFIX_JUMP < len(context_at(line, MAX_LINE, "invoked").prefix) <= MAX_PREFIX
    assert len(context_at(line, 0, "invoked").suffix) == MAX_SUFFIX


def test_a_longer_line_is_refused() -> None:
    text = snapshot("y = 1\r\n" + "x" * (MAX_LINE + 1) + "\r\n")
    with pytest.raises(InputError, match="line 2 has 20,001 characters"):
        context_at(text, 7, "invoked")
    assert context_at(text, 5, "invoked").line_prefix == "y = 1"


def test_a_long_suffix_ends_with_a_line() -> None:
    found = context("║" + "".join(f"line = {n}\r\n" for n in range(9000)))
    assert len(found.suffix) <= MAX_SUFFIX
    assert found.suffix.endswith("\n")
    assert found.suffix.splitlines()[-1].startswith("line = ")


@pytest.mark.parametrize(("n_lines", "is_cut"), [(2, False), (MAX_SUFFIX // 4, False), (MAX_SUFFIX // 4 + 1, True)])
def test_the_engine_is_told_whether_the_file_goes_on_behind_the_suffix(n_lines: int, is_cut: bool) -> None:
    found = context("║" + "x=1\n" * n_lines)
    assert fill_of(found, "file:///a.py", Settings()).suffix_is_cut is is_cut
    assert len(found.suffix) == min(4 * n_lines, MAX_SUFFIX)


@given(st.text(alphabet="ab \t\n\r\f😀é(", max_size=60), st.integers(0, 60))
def test_prefix_and_suffix_are_the_whole_of_a_short_file(text: str, at: int) -> None:
    found = context_at(snapshot(text), min(at, len(text)), "invoked")
    whole = (text[: found.start], text[found.end :])
    assert (found.prefix, found.suffix) == tuple(part.replace("\r\n", "\n").replace("\r", "\n") for part in whole)


def test_what_stands_around_a_document_is_read_where_it_leaves_room() -> None:
    text, cells = snapshot("x = 1\n"), Around("import os\r\n\n", "\n\ny = 2")
    found = context_at(text, 6, "automatic", around=cells)
    assert (found.prefix, found.suffix) == ("import os\n\nx = 1\n", "\n\ny = 2")
    long = context_at(snapshot("x = 1\n" * MAX_PREFIX), 6 * MAX_PREFIX, "automatic", around=cells)
    assert "import" not in long.prefix


def test_the_cut_of_what_stands_before_a_document_moves_only_in_jumps() -> None:
    before = "".join(f"line = {n}\n" for n in range(3000))
    starts = set()
    for n in range(200):
        own = "y = 2\n" * n
        found = context_at(snapshot(own), len(own), "automatic", around=Around(before))
        assert found.prefix.endswith(own)
        starts.add(found.prefix[:20])
    assert len(starts) <= 2


def test_the_context_after_a_suggestion_is_the_one_of_who_accepts_it() -> None:
    text = "def f():\n    return ║\n\nx = 1\n"
    ahead = context(text, "invoked").after("a\n    b")
    there = context(text.replace("║", "a\n    b║"))
    assert ahead == msgspec.structs.replace(there, start=ahead.start, end=ahead.end)
