"""Inline edits and holes in both Neovims: what is asked, how the answer is drawn, and what becomes of each hunk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from nvim_editor import VERSIONS, poll
from nvim_script import Scripted, lua_string

pytestmark = pytest.mark.e2e

EDIT, HOLES = "midspan/edit", "midspan/holes"
TEXT = "é = one(___)\ntwo = 2\nthree = 3\nfour = 4\n"

_DRAWN = """
local namespace = vim.api.nvim_create_namespace("midspan.preview")
local removed, inline, below = {}, {}, {}
for _, mark in ipairs(vim.api.nvim_buf_get_extmarks(0, namespace, 0, -1, { details = true })) do
  local row, col, details = mark[2], mark[3], mark[4]
  if details.hl_group == "MidspanRemoved" then
    local text = vim.api.nvim_buf_get_text(0, row, col, details.end_row, details.end_col, {})
    table.insert(removed, table.concat(text, "\\n"))
  elseif details.virt_text then
    table.insert(inline, details.virt_text[1][1])
  end
  for _, chunks in ipairs(details.virt_lines or {}) do
    table.insert(below, chunks[1][1])
  end
end
return { removed = removed, inline = inline, below = below }
"""


@pytest.fixture(params=VERSIONS)
def scripted(request: pytest.FixtureRequest) -> Iterator[Scripted]:
    """Neovim in normal mode at the start of TEXT."""
    with Scripted.opened(TEXT, request.param) as opened:
        yield opened


def change(first: tuple[int, int], last: tuple[int, int], text: str) -> str:
    """Returns a text edit in Lua; positions are in UTF-16."""
    start, end = (f"{{ line = {line}, character = {character} }}" for line, character in (first, last))
    return f'{{ range = {{ start = {start}, ["end"] = {end} }}, newText = {lua_string(text)} }}'


ARGUMENT = change((0, 8), (0, 11), "1, 2")
LINES = change((1, 0), (2, 0), "two = (\n    2\n)\n")
TAIL = change((3, 7), (3, 8), "44")


def propose(scripted: Scripted, method: str, *changes: str, more: str = "") -> None:
    """Has a method answered with these edits for the version that it names."""
    scripted.answer(
        method,
        "function(params) return { textDocument = params.textDocument, confidence = 1, "
        f"edits = {{ {', '.join(changes)} }}{more} }} end",
    )


def preview(scripted: Scripted, *changes: str) -> None:
    propose(scripted, EDIT, *changes)
    scripted.editor.nvim.command("%Midspan edit refill")
    scripted.until_told("hunk")


def drawn(scripted: Scripted) -> dict[str, list[str]]:
    found: dict[str, list[str]] = scripted.editor.lua(_DRAWN)
    return found


def nothing_drawn(scripted: Scripted) -> bool:
    return not any(drawn(scripted).values())


def params_of(scripted: Scripted, method: str) -> dict[str, Any]:
    params: dict[str, Any] = scripted.until_asked(method)["params"]
    return params


def test_a_range_is_asked_in_the_servers_encoding_with_version_and_preset(scripted: Scripted) -> None:
    scripted.answer(EDIT, "{ edits = {}, silence = 'nothing to do here', message = vim.NIL }")
    scripted.editor.nvim.command("1,2Midspan edit touch_up")
    scripted.until_told("nothing to do here")
    params = params_of(scripted, EDIT)
    assert params["range"] == {"start": {"line": 0, "character": 0}, "end": {"line": 1, "character": 7}}
    assert (params["preset"], params.get("instruction")) == ("touch_up", None)
    assert params["textDocument"]["version"] == scripted.editor.lua("return vim.lsp.util.buf_versions[1]")
    assert params["workDoneToken"]


def test_words_that_are_no_preset_are_an_instruction(scripted: Scripted) -> None:
    scripted.answer(EDIT, "{ edits = {}, silence = 'this checkpoint follows no instructions; presets: refill' }")
    scripted.editor.nvim.command("Midspan edit make it shorter")
    scripted.until_told("follows no instructions")
    params = params_of(scripted, EDIT)
    assert (params.get("preset"), params["instruction"]) == (None, "make it shorter")


def test_a_selection_of_letters_is_not_widened_to_lines(scripted: Scripted) -> None:
    scripted.answer(EDIT, "{ edits = {}, silence = 'no' }")
    scripted.editor.press("gg0fnve:Midspan edit refill<CR>")
    scripted.until_told("no")
    assert params_of(scripted, EDIT)["range"] == {
        "start": {"line": 0, "character": 5},
        "end": {"line": 0, "character": 7},
    }


def test_without_a_name_the_user_chooses_among_the_presets(scripted: Scripted) -> None:
    propose(scripted, EDIT, TAIL)
    scripted.editor.lua("""
        vim.ui.select = function(choices, options, done)
          offered = vim.tbl_map(options.format_item, choices)
          done(choices[2])
        end
    """)
    scripted.editor.nvim.command("Midspan edit")
    assert params_of(scripted, EDIT)["preset"] == "touch_up"
    assert scripted.editor.lua("return offered") == ["Re-fill the selection", "Touch up the selection"]


def test_where_the_checkpoint_follows_instructions_the_user_can_write_one(scripted: Scripted) -> None:
    scripted.answer(EDIT, "{ edits = {}, silence = 'no' }")
    scripted.editor.lua("script.answers['midspan/editPresets'].instructions = true")
    scripted.editor.lua("""
        vim.ui.select = function(choices, _, done) done(choices[#choices]) end
        vim.ui.input = function(_, done) done("use a dict") end
    """)
    scripted.editor.nvim.command("Midspan edit")
    params = params_of(scripted, EDIT)
    assert (params.get("preset"), params["instruction"]) == (None, "use a dict")


def test_what_goes_is_marked_and_what_comes_stands_beside_or_below(scripted: Scripted) -> None:
    preview(scripted, ARGUMENT, LINES, TAIL)
    assert drawn(scripted) == {
        "removed": ["___", "two = 2\n", "4"],
        "inline": ["1, 2", "44"],
        "below": ["two = (", "    2", ")"],
    }
    assert scripted.editor.text == TEXT, "nothing is changed before it is accepted"


def test_hunks_are_accepted_and_rejected_one_by_one(scripted: Scripted) -> None:
    scripted.editor.nvim.command("nmap ga <Plug>(midspan-hunk-accept)")
    scripted.editor.nvim.command("nmap gr <Plug>(midspan-hunk-reject)")
    preview(scripted, ARGUMENT, LINES, TAIL)
    scripted.editor.press("ggga")
    poll(lambda: scripted.editor.text.startswith("é = one(1, 2)\n"), "the first hunk was not accepted")
    scripted.editor.press("gr")
    poll(lambda: len(drawn(scripted)["removed"]) == 1, "the second hunk was not rejected")
    scripted.editor.press("ga")
    scripted.until_told("2 of 3 hunks accepted")
    assert scripted.editor.text == "é = one(1, 2)\ntwo = 2\nthree = 3\nfour = 44\n"
    assert nothing_drawn(scripted)


def test_hunks_accepted_one_after_the_other_are_one_undo_step(scripted: Scripted) -> None:
    preview(scripted, ARGUMENT, LINES, TAIL)
    for _ in range(3):
        scripted.editor.nvim.command("Midspan accept")
    assert scripted.editor.text == "é = one(1, 2)\ntwo = (\n    2\n)\nthree = 3\nfour = 44\n"
    scripted.editor.press("u")
    poll(lambda: scripted.editor.text == TEXT, "one undo did not bring the old text back")


def test_all_hunks_are_accepted_in_one_undo_step_that_leaves_earlier_typing_alone(scripted: Scripted) -> None:
    scripted.editor.press("Gofive = 5<Esc>")
    poll(lambda: scripted.editor.mode == "n" and "five = 5" in scripted.editor.text, "not typed")
    preview(scripted, ARGUMENT, LINES, TAIL)
    scripted.editor.nvim.command("Midspan accept all")
    assert scripted.editor.text == "é = one(1, 2)\ntwo = (\n    2\n)\nthree = 3\nfour = 44\nfive = 5\n"
    scripted.until_told("3 of 3 hunks accepted")
    scripted.editor.press("u")
    poll(lambda: scripted.editor.text == TEXT + "five = 5\n", "one undo did not bring the old text back")


def test_typing_between_two_acceptances_keeps_its_own_undo_step(scripted: Scripted) -> None:
    preview(scripted, ARGUMENT, TAIL)
    scripted.editor.nvim.command("1Midspan accept")
    scripted.editor.press("jA + 1<Esc>")
    poll(lambda: scripted.editor.mode == "n" and " + 1" in scripted.editor.text, "not typed")
    typed = scripted.editor.text
    scripted.editor.nvim.command("Midspan accept")
    assert scripted.editor.text != typed
    scripted.editor.press("u")
    poll(lambda: scripted.editor.text == typed, "undo took the typed text too")


def test_rejecting_all_leaves_the_text_as_it_was(scripted: Scripted) -> None:
    preview(scripted, ARGUMENT, LINES, TAIL)
    scripted.editor.nvim.command("Midspan reject all")
    assert nothing_drawn(scripted)
    assert scripted.editor.text == TEXT
    scripted.editor.nvim.command("Midspan accept")
    scripted.until_told("nothing is proposed")


def test_hunks_move_along_when_text_above_them_changes(scripted: Scripted) -> None:
    preview(scripted, LINES, TAIL)
    scripted.editor.press("ggO# a comment<Esc>")
    poll(lambda: scripted.editor.mode == "n" and "# a comment" in scripted.editor.text, "not typed")
    scripted.editor.nvim.command("Midspan accept all")
    assert scripted.editor.text == "# a comment\né = one(___)\ntwo = (\n    2\n)\nthree = 3\nfour = 44\n"


def test_a_hunk_whose_text_the_user_changes_is_withdrawn_with_a_message(scripted: Scripted) -> None:
    preview(scripted, LINES, TAIL)
    scripted.editor.press("2GA2<Esc>")
    scripted.until_told("withdrawn")
    assert len(drawn(scripted)["removed"]) == 1
    scripted.editor.nvim.command("Midspan accept all")
    assert scripted.editor.text == "é = one(___)\ntwo = 22\nthree = 3\nfour = 44\n"


def test_an_answer_for_an_older_text_is_declined_with_a_message(scripted: Scripted) -> None:
    scripted.hold(EDIT)
    propose(scripted, EDIT, LINES)
    scripted.editor.nvim.command("2Midspan edit refill")
    scripted.until_asked(EDIT)
    scripted.editor.press("ggO# typed meanwhile<Esc>")
    poll(lambda: scripted.editor.mode == "n" and "meanwhile" in scripted.editor.text, "not typed")
    scripted.release(EDIT)
    scripted.until_told("the text changed meanwhile; ask again")
    assert nothing_drawn(scripted)


def test_an_answer_that_the_server_has_rebased_is_previewed(scripted: Scripted) -> None:
    scripted.hold(EDIT)
    scripted.editor.nvim.command("2Midspan edit refill")
    scripted.until_asked(EDIT)
    scripted.editor.press("ggO# typed meanwhile<Esc>")
    poll(lambda: scripted.editor.mode == "n" and "meanwhile" in scripted.editor.text, "not typed")
    moved = change((2, 6), (2, 7), "22")
    scripted.answer(EDIT, f"{{ textDocument = {{ version = vim.lsp.util.buf_versions[1] }}, edits = {{ {moved} }} }}")
    scripted.release(EDIT)
    scripted.until_told("1 hunk")
    assert drawn(scripted) == {"removed": ["2"], "inline": ["22"], "below": []}


def test_progress_stands_beside_the_range_until_the_answer(scripted: Scripted) -> None:
    scripted.hold(EDIT)
    propose(scripted, EDIT, TAIL)
    scripted.editor.nvim.command("4Midspan edit refill")
    token = params_of(scripted, EDIT)["workDoneToken"]
    value = "{ kind = 'report', percentage = 40, message = 'pass 3' }"
    scripted.editor.lua(f"script.notify('$/progress', {{ token = ..., value = {value} }})", token)

    def shown() -> list[tuple[int, str]]:
        marks = scripted.editor.lua("""
            local namespace = vim.api.nvim_create_namespace("midspan.progress")
            return vim.api.nvim_buf_get_extmarks(0, namespace, 0, -1, { details = true })
        """)
        return [(mark[1], mark[3]["virt_text"][0][0]) for mark in marks]

    poll(lambda: shown() == [(3, "Midspan: 40 % pass 3")], "progress is not shown")
    scripted.release(EDIT)
    scripted.until_told("1 hunk")
    assert shown() == []


def test_rejecting_while_the_edit_is_made_withdraws_the_request(scripted: Scripted) -> None:
    scripted.hold(EDIT)
    propose(scripted, EDIT, TAIL)
    scripted.editor.nvim.command("Midspan edit refill")
    asked = scripted.until_asked(EDIT)
    scripted.editor.nvim.command("Midspan reject")
    poll(lambda: asked["id"] in scripted.cancelled, "the request was not withdrawn")
    scripted.release(EDIT)
    scripted.editor.lua("vim.wait(50)")
    assert nothing_drawn(scripted)


def test_holes_are_looked_for_in_the_range_or_everywhere(scripted: Scripted) -> None:
    propose(scripted, HOLES, ARGUMENT, more=", message = 'filled 1 of 2 holes; the suggestion is blank'")
    scripted.editor.nvim.command("Midspan holes")
    scripted.until_told("Midspan: 1 of 2 holes; :Midspan accept | reject")
    assert "range" not in params_of(scripted, HOLES)
    assert drawn(scripted)["inline"] == ["1, 2"]
    scripted.editor.nvim.command("Midspan accept all")
    assert scripted.editor.text == TEXT.replace("___", "1, 2")
    scripted.editor.nvim.command("2,3Midspan holes")
    last = scripted.until_asked(HOLES, 2)["params"]["range"]
    assert last == {"start": {"line": 1, "character": 0}, "end": {"line": 2, "character": 9}}


def test_edits_that_reach_behind_the_last_line_break_fit_the_buffer(scripted: Scripted) -> None:
    preview(scripted, change((2, 0), (4, 0), ""))
    scripted.editor.nvim.command("Midspan accept")
    assert scripted.editor.text == "é = one(___)\ntwo = 2\n"
    preview(scripted, change((2, 0), (2, 0), "more = 5\n"))
    assert drawn(scripted)["below"] == ["more = 5"]
    scripted.editor.nvim.command("Midspan accept")
    assert scripted.editor.text == "é = one(___)\ntwo = 2\nmore = 5\n"


def test_next_and_previous_go_round_the_hunks(scripted: Scripted) -> None:
    preview(scripted, ARGUMENT, LINES, TAIL)
    scripted.editor.press("gg")
    for action, row in (("next", 2), ("next", 4), ("next", 1), ("prev", 4), ("prev", 2)):
        scripted.editor.lua("require('midspan.hunks')[...]()", action)
        assert scripted.editor.nvim.current.window.cursor[0] == row


def test_an_error_of_the_server_is_told_in_a_sentence(scripted: Scripted) -> None:
    scripted.answer(EDIT, "function() return nil, { code = -32603, message = 'the engine is gone' } end")
    scripted.editor.nvim.command("Midspan edit refill")
    scripted.until_told("edit failed: the engine is gone")


def test_a_code_action_of_the_server_is_previewed_like_a_command(scripted: Scripted) -> None:
    propose(scripted, HOLES, ARGUMENT)
    scripted.answer(
        "textDocument/codeAction",
        """function(params)
          local document = { uri = params.textDocument.uri, version = vim.lsp.util.buf_versions[1] }
          local command = { title = "Fill", command = "midspan.applyHoles" }
          command.arguments = { { textDocument = document, range = params.range } }
          return { { title = "Fill", command = command } }
        end""",
    )
    scripted.editor.press("ggV")
    poll(lambda: scripted.editor.mode == "V", "nothing was selected")
    scripted.editor.lua("vim.lsp.buf.code_action({ apply = true })")
    scripted.until_told("1 hunk")
    assert drawn(scripted)["inline"] == ["1, 2"]
    assert scripted.editor.text == TEXT, "nothing is changed before it is accepted"
    params = params_of(scripted, HOLES)
    assert params["range"]["start"] == {"line": 0, "character": 0}
    assert params["textDocument"]["version"] == scripted.editor.lua("return vim.lsp.util.buf_versions[1]")
    assert params["workDoneToken"]
    assert not scripted.asked("workspace/executeCommand")
