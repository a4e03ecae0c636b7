"""A real Neovim 0.12, the real language server and the real engine, with nothing of the user's in the way."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from nvim_editor import PROGRAMS, REPOSITORY, Editor, Terminal, nvim_arguments, poll

pytestmark = pytest.mark.e2e

SAMPLE = REPOSITORY / "server" / "midspan_server" / "demo" / "inventory.py"
LINE = '            raise ValueError("quantity must be positive")'
"""Stands twice in the sample; its second copy is taken out and typed again, so that the model has seen the answer."""

ENGINE_START_S = 90.0
"""Patience for a new engine: a process that imports torch and loads the model on a busy machine."""


@pytest.fixture(scope="module")
def engine() -> Iterator[None]:
    """An engine for these tests alone, ready before the first one types."""
    with tempfile.TemporaryDirectory(prefix="midspan-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("MIDSPAN_RUNTIME_DIR", f"{folder}/run")
        patch.setenv("XDG_STATE_HOME", f"{folder}/state")
        run_midspan("engine", "start", "--json")
        yield
        run_midspan("engine", "stop", "--json")


@pytest.fixture
def socket_folder() -> Iterator[Path]:
    """A folder with a short name, since the path of a unix socket holds about a hundred bytes."""
    with tempfile.TemporaryDirectory(prefix="midspan-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of a real file in a project of its own, with one line taken out; returns the file."""
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "pyproject.toml").write_text('[project]\nname = "shop"\n')
    head, tail = split_sample()
    file = folder / "inventory.py"
    file.write_text(f"{head}            \n{tail}")
    return file


@pytest.fixture
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps Neovim's files out of the user's folders and puts the tested `midspan` first on PATH."""
    monkeypatch.setenv("PATH", f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}")
    for name in ("STATE", "DATA", "CONFIG", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))


@pytest.fixture
def editor(engine: None, own_folders: None, project: Path, socket_folder: Path) -> Iterator[Editor]:
    """Neovim at the end of the emptied line, in insert mode."""
    with Editor.headless(project, socket_folder / "nvim.sock") as opened:
        go_to_gap(opened)
        yield opened


def run_midspan(*arguments: str) -> dict[str, object]:
    done = subprocess.run([PROGRAMS / "midspan", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert isinstance(answer, dict)
    return answer


def engine_pid() -> int | None:
    status = run_midspan("status", "--json")["engine"]
    return int(status["pid"]) if isinstance(status, dict) else None


def split_sample() -> tuple[str, str]:
    text = SAMPLE.read_text()
    assert text.count(f"{LINE}\n") == 2, "the sample repeats its line"
    head, _, tail = text.rpartition(f"{LINE}\n")
    return head, tail


def counts(opened: Editor) -> dict[str, int]:
    """Returns what the server has counted so far."""
    found: dict[str, int] = opened.lua("""
        local client = vim.lsp.get_clients({ name = "midspan" })[1]
        return client:request_sync("midspan/status", vim.empty_dict()).result.counts
    """)
    return found


def go_to_gap(opened: Editor) -> None:
    head, _ = split_sample()
    opened.nvim.command(f"{head.count(chr(10)) + 1}")
    opened.press("A")
    poll(lambda: opened.mode == "i", "Neovim did not go into insert mode")


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
    line, rest = editor.lua("""
        local before = vim.api.nvim_get_current_line()
        require("midspan").accept_word()
        vim.wait(10000, function() return vim.api.nvim_get_current_line() ~= before end, 5)
        local namespace = vim.api.nvim_create_namespace("nvim.lsp.inline_completion")
        local marks = vim.api.nvim_buf_get_extmarks(0, namespace, 0, -1, { details = true })
        return { vim.api.nvim_get_current_line(), marks[1] and marks[1][4].virt_text[1][1] or "" }
    """)
    word = line.removeprefix(before)
    assert word
    assert f"{word}{rest}" == ghost.text.split("\n")[0]


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
        return editor.find_ghost(LINE.strip()) is not None

    poll(appears, "ghost text did not come back", deadline_s=ENGINE_START_S)
    assert engine_pid() not in (None, pid)


def test_in_a_terminal_the_ghost_text_has_its_own_colour(
    engine: None, own_folders: None, project: Path, socket_folder: Path
) -> None:
    listening = socket_folder / "nvim.sock"
    arguments = nvim_arguments(project, "--listen", str(listening), "--cmd", "set termguicolors")
    with closing(Terminal(socket_folder / "tmux.sock", arguments)) as terminal, Editor.listening(listening) as opened:
        go_to_gap(opened)
        ghost = opened.type_until_ghost(LINE.strip(), terminal.type)
        colour = opened.lua("return vim.api.nvim_get_hl(0, { name = 'ComplHint', link = false }).fg")
        typed, shown = opened.line.lstrip(), ghost.text.split("\n")[0]
        screen = poll(
            lambda: (drawn := terminal.capture()) and is_ghost(drawn, typed, shown, colour) and drawn,
            "the ghost text did not reach the screen in its own colour",
        )
    keep_artefact(screen)


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


def keep_artefact(screen: str) -> None:
    """Writes the screen to .cache/artifacts, with its escape sequences and as a picture."""
    folder = REPOSITORY / ".cache" / "artifacts"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "neovim.ansi").write_text(screen)
    console = Console(record=True, width=160, file=io.StringIO(), color_system="truecolor", force_terminal=True)
    console.print(Text.from_ansi(screen), soft_wrap=True)
    console.save_svg(str(folder / "neovim.svg"), title="Midspan in Neovim")
