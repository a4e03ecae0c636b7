"""Real Neovims, the real language server and the real engine, with nothing of the user's in the way."""

from __future__ import annotations

import os
import re
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from nvim_editor import GHOST, PROGRAMS, REPOSITORY, SETTINGS, VERSIONS, Editor, poll
from nvim_picture import save_svg
from nvim_sample import LINE, go_to_gap, own_engine, run_midspan, split_sample, write_project

pytestmark = pytest.mark.e2e

HOLE = '            raise ValueError(f"only {item.quantity} of {___} left")'
"""Like another line of the sample."""

ENGINE_START_S = 90.0
"""Patience for a new engine: a process that imports torch and loads the model on a busy machine."""


@pytest.fixture(scope="module")
def engine() -> Iterator[None]:
    """An engine for these tests alone, ready before the first one types."""
    with own_engine():
        yield


@pytest.fixture
def socket_folder() -> Iterator[Path]:
    """A folder with a short name, since the path of a unix socket holds about a hundred bytes."""
    with tempfile.TemporaryDirectory(prefix="midspan-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of a real file in a project of its own, with one line taken out; returns the file."""
    return write_project(tmp_path / "shop")


@pytest.fixture(params=VERSIONS)
def editor(request: pytest.FixtureRequest, engine: None, project: Path, socket_folder: Path) -> Iterator[Editor]:
    """Neovim at the end of the emptied line, in insert mode."""
    with Editor.headless(project, socket_folder / "nvim.sock", request.param) as opened:
        go_to_gap(opened)
        yield opened


def engine_pid() -> int | None:
    status = run_midspan("status", "--json")["engine"]
    return int(status["pid"]) if isinstance(status, dict) else None


def counts(opened: Editor) -> dict[str, int]:
    """Returns what the server has counted so far."""
    found: dict[str, int] = opened.lua("""
        local client = vim.lsp.get_clients({ name = "midspan" })[1]
        return client:request_sync("midspan/status", vim.empty_dict()).result.counts
    """)
    return found


def test_accepting_inserts_exactly_the_ghost_text_between_prefix_and_suffix(editor: Editor) -> None:
    head, tail = split_sample()
    ghost = editor.type_until_ghost(LINE.strip())
    typed = editor.line
    assert ghost.highlight == "ComplHint"
    assert ghost.col == len(typed), "the ghost begins at the cursor"
    editor.press("<M-l>")
    poll(lambda: editor.line != typed, "nothing was accepted")
    assert editor.text == f"{head}{typed}{ghost.text}\n{tail}"
    assert editor.mode == "i"


def test_one_undo_brings_back_exactly_what_was_typed(editor: Editor) -> None:
    editor.type_until_ghost(LINE.strip())
    before = editor.text
    editor.press("<M-l>")
    poll(lambda: editor.text != before, "nothing was accepted")
    editor.press("<Esc>u")
    poll(lambda: editor.mode == "n", "Neovim did not leave insert mode")
    poll(lambda: editor.text == before, "undo did not bring the typed text back")


def test_accepting_a_word_keeps_the_rest_of_the_suggestion_on_the_screen(editor: Editor) -> None:
    ghost = editor.type_until_ghost(LINE.strip())
    before = editor.line
    # Looked at in the same breath, before Neovim asks the server again.
    line, left = editor.lua(f"""
        local before = vim.api.nvim_get_current_line()
        require("midspan").accept_word()
        vim.wait(10000, function() return vim.api.nvim_get_current_line() ~= before end, 5)
        local function ghost() {GHOST} end
        return {{ vim.api.nvim_get_current_line(), ghost() }}
    """)
    word, rest = line.removeprefix(before), left[2] if left else ""
    assert word
    assert f"{word}{rest}" == ghost.text


def test_accepting_after_typing_on_leaves_no_letter_behind(editor: Editor) -> None:
    ghost = editor.type_until_ghost(LINE.strip())
    first = ghost.text.split("\n")[0]
    assert first, "the suggestion goes on in this line"
    whole = editor.line + ghost.text
    # In one go: Neovim gets no time to ask the server again between the letter and the key.
    editor.press(f"{first[0].replace('<', '<lt>')}<M-l>")
    poll(lambda: whole.split("\n")[0] in editor.text.split("\n"), f"{whole!r} did not come about; line {editor.line!r}")


def test_a_suggestion_behind_an_emoji_is_carried_along_in_bytes(editor: Editor) -> None:
    line, typed = "a😀b()", "a😀b(x)"
    # In UTF-16, the range is the closing bracket: a, two units of the emoji, b and the opening one stand before it.
    item = {"insertText": "xy)", "range": {"start": {"line": 0, "character": 5}, "end": {"line": 0, "character": 6}}}
    asked = {"row": 0, "col": len(line.encode()) - 1, "line": line}
    now = {"row": 0, "col": len(typed.encode()) - 1, "line": typed}
    carried = editor.lua(
        """
        local item, asked, now = ...
        local suggestion = require("midspan.suggestion")
        local carried = suggestion.carry(suggestion.from_item(item, asked, "utf-16"), asked, now)
        return { carried, suggestion.to_item(carried, now, "utf-16") }
        """,
        item,
        asked,
        now,
    )
    shown = {"insertText": "y)", "range": {"start": {"line": 0, "character": 6}, "end": {"line": 0, "character": 7}}}
    assert carried == [{"text": "y)", "start": now["col"], "covered": 1}, shown]


def test_an_answer_that_the_server_took_along_is_shown_where_the_server_means_it(editor: Editor) -> None:
    # Asked behind "é = ", "pri" was typed before the server answered, "n" after that.
    item = {"insertText": "nt(x)", "range": {"start": {"line": 0, "character": 7}, "end": {"line": 0, "character": 7}}}
    asked = {"row": 0, "col": 5, "line": "é = )"}
    now = {"row": 0, "col": 9, "line": "é = prin)"}
    carried = editor.lua(
        """
        local item, asked, now = ...
        local suggestion = require("midspan.suggestion")
        local place = suggestion.place_of(item, asked, now, "utf-16")
        return suggestion.carry(suggestion.from_item(item, place, "utf-16"), place, now)
        """,
        item,
        asked,
        now,
    )
    assert carried == {"text": "t(x)", "start": now["col"], "covered": 0}


def test_a_server_that_attaches_in_insert_mode_is_asked_at_once(editor: Editor) -> None:
    ghost = editor.type_until_ghost(LINE.strip())
    editor.lua("vim.lsp.enable('midspan', false)")
    poll(lambda: editor.client_id is None and editor.ghost is None, "the server did not leave")
    assert editor.mode == "i"
    editor.lua("vim.lsp.enable('midspan')")
    again = poll(lambda: editor.ghost, "no ghost text without a key", deadline_s=ENGINE_START_S)
    assert again.text == ghost.text
    assert editor.mode == "i"


def test_what_is_shown_and_accepted_is_reported(editor: Editor) -> None:
    editor.type_until_ghost(LINE.strip())
    before = editor.line
    editor.press("<M-w>")
    poll(lambda: editor.line != before, "no word was accepted")
    poll(lambda: counts(editor).get("partly accepted") == 1, "the accepted word was not counted")
    before = editor.line
    editor.press("<M-l>")
    poll(lambda: editor.line != before, "the rest was not accepted")
    poll(lambda: counts(editor).get("accepted") == 1, "the accepted suggestion was not counted")
    assert counts(editor)["shown"] >= 1


def test_a_dismissed_suggestion_stays_away_until_the_text_changes(editor: Editor) -> None:
    editor.type_until_ghost(LINE.strip())
    before = editor.text
    editor.press("<M-d>")
    poll(lambda: editor.ghost is None, "the ghost text was not dismissed")
    editor.press("<M-l>")
    editor.press("<Esc>")
    poll(lambda: editor.mode == "n", "Neovim did not leave insert mode")
    assert editor.text == before


def test_switched_off_the_server_is_asked_nothing(editor: Editor) -> None:
    editor.type_until_ghost(LINE.strip())
    editor.nvim.command("Midspan toggle")
    assert editor.ghost is None
    poll(lambda: editor.lua("return not next(watched.open)"), "a request stayed open")
    asked, sent = editor.lua("return { watched.asked, watched.sent }")
    editor.type("x")
    poll(lambda: editor.lua("return watched.asked") > asked, "Neovim's completion did not ask")
    assert editor.lua("return watched.sent") == sent
    editor.nvim.command("Midspan toggle")
    editor.type("y")
    poll(lambda: editor.lua("return watched.sent") > sent, "switched on again, the server is not asked")


def test_checkhealth_names_the_server_and_finds_nothing_wrong(editor: Editor) -> None:
    editor.type_until_ghost(LINE.strip())
    editor.press("<Esc>")
    editor.nvim.command("checkhealth midspan")
    report = poll(lambda: editor.text if "Keys" in editor.text else "", "checkhealth did not end")
    assert str(PROGRAMS / "midspan") in report
    assert "language server attached to 1 buffer(s)" in report
    assert re.search("engine (ready|busy): ", report)
    assert "a key accepts suggestions" in report
    assert "ERROR" not in report
    assert "WARNING" not in report


def test_the_status_command_gives_the_reason_that_the_server_reported(editor: Editor) -> None:
    editor.type_until_ghost(LINE.strip())
    assert editor.messages_of("Midspan status") == "Midspan: ready"
    editor.lua("""
        local client = vim.lsp.get_clients({ bufnr = 0, name = "midspan" })[1]
        client.settings = { midspan = { enabled = false } }
        client:notify("workspace/didChangeConfiguration", { settings = client.settings })
    """)
    client = editor.client_id
    reported = "return require('midspan.status').describe(vim.lsp.get_client_by_id(...))"
    editor.type("x")
    poll(lambda: editor.lua(reported, client).startswith("off: "), "the server's notification was not kept")
    assert "midspan.enabled" in editor.messages_of("Midspan status")


def test_restart_brings_a_new_server_that_suggests_again(editor: Editor) -> None:
    editor.type_until_ghost(LINE.strip())
    old = editor.client_id
    editor.press("<Esc>cc")
    editor.nvim.command("Midspan restart")
    poll(lambda: editor.client_id not in (None, old), "no new server attached")
    editor.type_until_ghost(LINE.strip())


@pytest.mark.parametrize("version", VERSIONS)
def test_with_popup_the_completion_menu_offers_what_ghost_text_would(
    version: str, engine: None, project: Path, socket_folder: Path
) -> None:
    config = (
        f"vim.lsp.config('midspan', {{ settings = {{ midspan = {{ popup = true, {SETTINGS} }} }} }}); "
        "vim.o.completeopt = 'menuone,noinsert'; "
        "vim.api.nvim_create_autocmd('LspAttach', { callback = function(event) "
        "vim.lsp.completion.enable(true, event.data.client_id, event.buf, {}) end }); "
    )
    with Editor.headless(project, socket_folder / "nvim.sock", version, config) as opened:
        go_to_gap(opened)
        opened.type('raise ValueError("quantity must be')
        opened.press("<C-x><C-o>")
        is_open = "return vim.fn.pumvisible() == 1"
        poll(lambda: opened.lua(is_open), "no menu", deadline_s=ENGINE_START_S)
        assert opened.ghost is None, "the same text is offered twice"
        opened.press("<C-y>")
        poll(lambda: LINE in opened.text.split("\n"), f"the entry was not inserted: {opened.line!r}")
        poll(lambda: counts(opened).get("accepted") == 1, "the accepted entry was not counted")


def test_a_hole_is_filled_previewed_accepted_and_undone_while_the_canvas_is_watched(editor: Editor) -> None:
    editor.press("<Esc>cc" + HOLE.strip() + "<Esc>")
    poll(lambda: editor.mode == "n" and editor.line == HOLE, "the hole was not typed")
    before = editor.text
    poll(lambda: not editor.left_alone, "the server was not configured")
    editor.nvim.command("Midspan watch")
    editor.nvim.command(".Midspan holes")
    poll(lambda: editor.is_proposing, "nothing was proposed", deadline_s=ENGINE_START_S)
    assert editor.text == before, "nothing changes before it is accepted"
    titles = editor.lua("""
        return vim.tbl_map(function(window)
          local title = vim.api.nvim_win_get_config(window).title
          return title and title[1][1] or ""
        end, vim.api.nvim_list_wins())
    """)
    assert any("pass" in title for title in titles), "no draft was drawn"
    editor.nvim.command("Midspan watch")
    editor.nvim.command("Midspan accept")
    assert "___" not in editor.line
    assert editor.line.startswith(HOLE.partition("___")[0])
    editor.press("u")
    poll(lambda: editor.text == before, "undo did not bring the hole back")


TOUCH_UP = {
    "command": "vim.cmd('.Midspan edit touch_up')",
    "code action": """
        local row = vim.api.nvim_win_get_cursor(0)[1]
        vim.lsp.buf.code_action({
          apply = true,
          filter = function(action) return vim.startswith(action.title, "Touch up") end,
          range = { start = { row, 0 }, ["end"] = { row, #vim.api.nvim_get_current_line() } },
        })
    """,
}


@pytest.mark.parametrize("asked_by", TOUCH_UP)
def test_a_mistyped_name_is_mended_previewed_accepted_and_undone(editor: Editor, asked_by: str) -> None:
    editor.press("<Esc>cc" + LINE.strip().replace("ValueError", "ValueErorr") + "<Esc>")
    poll(lambda: editor.mode == "n" and "Erorr" in editor.line, "the line was not typed")
    before = editor.text
    poll(lambda: not editor.left_alone, "the server was not configured")
    editor.lua(TOUCH_UP[asked_by])
    poll(lambda: editor.is_proposing, "nothing was proposed", deadline_s=ENGINE_START_S)
    assert editor.text == before, "nothing changes before it is accepted"
    editor.nvim.command("Midspan accept")
    assert editor.line == LINE
    editor.press("u")
    poll(lambda: editor.text == before, "undo did not bring the old text back")


def test_an_instruction_is_declined_with_what_the_checkpoint_can_do(editor: Editor) -> None:
    editor.press("<Esc>")
    poll(lambda: not editor.left_alone, "the server was not configured")
    editor.lua("messages = {} vim.notify = function(message) table.insert(messages, message) end")
    editor.nvim.command("1Midspan edit translate this into French")
    told = poll(lambda: editor.lua("return messages[1]"), "no answer")
    assert "follows no instructions; it can fill a selection anew" in told


def test_a_killed_engine_lets_typing_go_on_and_ghost_text_comes_back(editor: Editor) -> None:
    editor.type_until_ghost(LINE.strip())
    pid = engine_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    editor.type("x")
    editor.press("<BS>")
    poll(lambda: editor.mode == "i", "Neovim left insert mode")
    # in an unchanged text the suggestion would be recalled, which needs no engine
    editor.lua("vim.api.nvim_buf_set_lines(0, 0, 0, false, { '# another text' })")

    def appears() -> bool:
        editor.press("<Esc>cc")
        poll(lambda: editor.line.strip() == "" and editor.mode == "i", "the line was not emptied")
        return editor.find_ghost(LINE.strip(), deadline_s=ENGINE_START_S) is not None

    poll(appears, "ghost text did not come back", deadline_s=ENGINE_START_S)
    assert engine_pid() not in (None, pid)


@pytest.mark.parametrize("version", VERSIONS)
def test_in_a_terminal_the_ghost_text_has_its_own_colour(
    version: str, engine: None, project: Path, socket_folder: Path
) -> None:
    with Editor.on_screen(project, socket_folder, version) as (opened, terminal):
        go_to_gap(opened)
        ghost = opened.type_until_ghost(LINE.strip(), terminal.type)
        colour = opened.lua("return vim.api.nvim_get_hl(0, { name = 'ComplHint', link = false }).fg")
        typed, shown = opened.line.lstrip(), ghost.text.split("\n")[0]
        screen = poll(
            lambda: (drawn := terminal.capture()) and is_ghost(drawn, typed, shown, colour) and drawn,
            "the ghost text did not reach the screen in its own colour",
        )
    artefacts = REPOSITORY / ".cache" / "artifacts"
    artefacts.mkdir(parents=True, exist_ok=True)
    save_svg(screen, artefacts / f"neovim-{version}.svg", f"Midspan in Neovim {version}")


def is_ghost(screen: str, typed: str, shown: str, colour: int) -> bool:
    """Tells whether somewhere on the screen `shown` follows `typed` in the given colour, and `typed` has another."""
    text = Text.from_ansi(screen)
    starts = [found.start() + len(typed) for found in re.finditer(re.escape(typed + shown), text.plain)]
    return any(
        {colour_at(text, start), colour_at(text, start + len(shown) - 1)} == {colour}
        and colour_at(text, start - 1) != colour
        for start in starts
    )


def colour_at(text: Text, offset: int) -> int | None:
    """Returns the foreground of a character as 0xRRGGBB, None for the terminal's own."""
    color = text.get_style_at_offset(Console(), offset).color
    if color is None or color.triplet is None:
        return None
    red, green, blue = color.triplet
    return red << 16 | green << 8 | blue
