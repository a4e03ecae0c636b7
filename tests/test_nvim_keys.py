"""The <Plug> maps of both Neovims beyond those that every test of ghost text presses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nvim_editor import VERSIONS, poll
from nvim_script import Scripted

pytestmark = pytest.mark.e2e

EDIT, HOLES = "midspan/edit", "midspan/holes"
TEXT = "one = 1\ntwo = 2\nthree = 3\n"


@pytest.fixture(params=VERSIONS)
def scripted(request: pytest.FixtureRequest) -> Iterator[Scripted]:
    """Neovim in normal mode on the first line of TEXT."""
    with Scripted.opened(TEXT, request.param) as opened:
        yield opened


def bind(scripted: Scripted, modes: str, **actions: str) -> None:
    for key, action in actions.items():
        for mode in modes:
            scripted.editor.nvim.command(f"{mode}map g{key} <Plug>(midspan-{action})")


def propose(scripted: Scripted) -> None:
    """Has every line's number proposed to become 0."""
    edits = ", ".join(
        f"{{ newText = '0', range = {{ start = {{ line = {line}, character = {column} }}, "
        f"['end'] = {{ line = {line}, character = {column + 1} }} }} }}"
        for line, column in ((0, 6), (1, 6), (2, 8))
    )
    scripted.answer(
        HOLES, f"function(params) return {{ textDocument = params.textDocument, edits = {{ {edits} }} }} end"
    )
    scripted.editor.press("gh")
    scripted.until_told("3 hunks")


def test_toggle_switches_in_normal_and_in_insert_mode(scripted: Scripted) -> None:
    bind(scripted, "ni", t="toggle")
    scripted.editor.press("gt")
    scripted.until_told("suggestions off")
    scripted.editor.press("igt")
    scripted.until_told("suggestions on")


def test_edit_is_about_the_line_or_the_selection(scripted: Scripted) -> None:
    scripted.answer(EDIT, "{ edits = {}, silence = 'no' }")
    scripted.editor.lua("vim.ui.select = function(choices, _, done) done(choices[1]) end")
    bind(scripted, "nx", e="edit")
    scripted.editor.press("ge")
    assert scripted.until_asked(EDIT)["params"]["range"] == {
        "start": {"line": 0, "character": 0},
        "end": {"line": 0, "character": 7},
    }
    scripted.editor.press("jVjge")
    assert scripted.until_asked(EDIT, 2)["params"]["range"] == {
        "start": {"line": 1, "character": 0},
        "end": {"line": 2, "character": 9},
    }


def test_holes_are_those_of_the_buffer_or_of_the_selection(scripted: Scripted) -> None:
    scripted.answer(HOLES, "{ edits = {}, silence = 'no' }")
    bind(scripted, "nx", h="holes")
    scripted.editor.press("gh")
    assert "range" not in scripted.until_asked(HOLES)["params"]
    scripted.editor.press("jVgh")
    assert scripted.until_asked(HOLES, 2)["params"]["range"]["start"] == {"line": 1, "character": 0}


def test_keys_go_from_hunk_to_hunk(scripted: Scripted) -> None:
    bind(scripted, "n", h="holes", n="hunk-next", p="hunk-prev")
    propose(scripted)
    for key, row in (("gn", 2), ("gn", 3), ("gn", 1), ("gp", 3)):
        scripted.editor.press(key)
        poll(lambda row=row: scripted.editor.nvim.current.window.cursor[0] == row, f"{key} did not go to line {row}")


def test_keys_decide_about_one_hunk_or_all(scripted: Scripted) -> None:
    actions = {"a": "hunk-accept", "r": "hunk-reject", "A": "hunk-accept-all", "R": "hunk-reject-all"}
    bind(scripted, "n", h="holes", **actions)
    propose(scripted)
    scripted.editor.press("gggrgA")
    scripted.until_told("2 of 3 hunks accepted")
    assert scripted.editor.text == "one = 1\ntwo = 0\nthree = 0\n"
    scripted.editor.press("u")
    poll(lambda: scripted.editor.text == TEXT, "one undo did not bring the old text back")
    propose(scripted)
    scripted.editor.press("gggagR")
    scripted.until_told("1 of 3 hunks accepted")
    assert scripted.editor.text == "one = 0\ntwo = 2\nthree = 3\n"
