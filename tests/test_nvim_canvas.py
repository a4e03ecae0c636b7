"""The window of both Neovims in which the canvas is watched: drawn, closed, and free of cost while it is closed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from nvim_editor import VERSIONS, poll
from nvim_script import Scripted

pytestmark = pytest.mark.e2e

WATCH = "midspan/watch"

_CANVAS = """
local windows = vim.tbl_filter(function(window)
  return vim.api.nvim_win_get_config(window).relative == "editor"
end, vim.api.nvim_list_wins())
if not windows[1] then return {} end
local bufnr = vim.api.nvim_win_get_buf(windows[1])
local marks = vim.api.nvim_buf_get_extmarks(bufnr, -1, 0, -1, { details = true })
return {
  vim.api.nvim_buf_get_lines(bufnr, 0, -1, false),
  vim.tbl_map(function(mark) return mark[4].hl_group end, marks),
}
"""


@pytest.fixture(params=VERSIONS)
def scripted(request: pytest.FixtureRequest) -> Iterator[Scripted]:
    """Neovim whose server lets itself be watched."""
    with Scripted.opened("x = 1\n", request.param) as opened:
        opened.answer(WATCH, "function(params) return { enabled = params.enabled } end")
        yield opened


def canvas(scripted: Scripted) -> list[Any]:
    """Returns the lines of the window and the colours in them, nothing when it is closed."""
    found: list[Any] = scripted.editor.lua(_CANVAS)
    return found


def wanted(scripted: Scripted) -> list[bool]:
    """Returns what the server was asked for so far: drafts, or none."""
    return [each["params"]["enabled"] for each in scripted.asked(WATCH)]


def test_the_canvas_is_drawn_in_a_window_of_its_own_and_closed_again(scripted: Scripted) -> None:
    scripted.editor.nvim.command("Midspan watch")
    assert wanted(scripted) == [True]
    hint = "Nothing settles yet: type, edit or fill holes, and the canvas is drawn here pass by pass."
    assert canvas(scripted) == [[hint], ["MidspanPin"]]
    slots = (
        "{ text = 'a = ', kind = 'pin', entropy = 0 }, { text = 'b\\nc', kind = 'unsure', entropy = 2.0 }, "
        "{ text = '', kind = 'blank', entropy = 1.0 }"
    )
    scripted.editor.lua(
        f"script.notify('midspan/draft', {{ uri = '', step = 3, isLast = false, slots = {{ {slots} }} }})"
    )
    colours = ["MidspanPin", "MidspanGuess", "MidspanGuess", "MidspanPin"]
    poll(lambda: canvas(scripted) == [["a = b", "c·"], colours], "the draft was not drawn")
    scripted.editor.lua(
        "script.notify('midspan/draft', { step = 4, slots = { { text = 'a = bc', kind = 'accepted' } } })"
    )
    poll(lambda: canvas(scripted) == [["a = bc"], ["MidspanAccepted"]], "the next draft did not take its place")
    scripted.editor.nvim.command("Midspan watch")
    assert canvas(scripted) == []
    poll(lambda: wanted(scripted) == [True, False], "drafts are still sent")


def test_opened_without_a_server_it_says_so_and_is_drawn_into_once_there_is_one(scripted: Scripted) -> None:
    scripted.editor.lua("vim.lsp.enable('midspan', false)")
    poll(lambda: scripted.editor.client_id is None, "the server did not leave")
    scripted.editor.nvim.command("Midspan watch")
    told = "Midspan: no language server is attached; :checkhealth midspan says why"
    assert canvas(scripted)[0] == [told]
    scripted.editor.lua("vim.lsp.enable('midspan')")
    poll(lambda: wanted(scripted) == [True], "the new server sends no drafts")


def test_until_it_is_opened_nothing_is_asked_for(scripted: Scripted) -> None:
    scripted.editor.press("A0")
    scripted.until_asked("textDocument/inlineCompletion")
    assert wanted(scripted) == []


def test_closed_by_a_command_of_neovim_no_more_drafts_are_asked_for(scripted: Scripted) -> None:
    scripted.editor.nvim.command("Midspan watch")
    scripted.editor.nvim.command("only")
    assert canvas(scripted) == []
    poll(lambda: wanted(scripted) == [True, False], "drafts are still sent")
    scripted.editor.nvim.command("Midspan watch")
    poll(lambda: wanted(scripted) == [True, False, True], "it does not open again")


def test_a_server_that_starts_again_is_watched_on(scripted: Scripted) -> None:
    scripted.editor.nvim.command("Midspan watch")
    scripted.editor.nvim.command("Midspan restart")
    scripted.until_told("language server restarted")
    poll(lambda: wanted(scripted) == [True, True], "the new server sends no drafts")


def test_a_server_that_cannot_be_watched_is_named_and_the_window_closed(scripted: Scripted) -> None:
    scripted.answer(WATCH, "function() return nil, { code = -32601, message = 'method not found' } end")
    scripted.editor.nvim.command("Midspan watch")
    scripted.until_told("the canvas cannot be watched: method not found")
    assert canvas(scripted) == []
