"""The command and the health check in both Neovims: each names what is wrong and how to mend it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nvim_editor import DEADLINE_S, REPOSITORY, VERSIONS, nvim_arguments, own_environment, poll
from nvim_script import Scripted

pytestmark = pytest.mark.e2e

COMMANDS = ["accept", "edit", "holes", "log", "reject", "restart", "status", "toggle", "watch"]


@pytest.fixture(params=VERSIONS)
def scripted(request: pytest.FixtureRequest) -> Iterator[Scripted]:
    """Neovim in normal mode in a Python file."""
    with Scripted.opened("x = 1\n", request.param) as opened:
        yield opened


def health(scripted: Scripted) -> str:
    """Returns what `:checkhealth midspan` says."""
    scripted.editor.nvim.command("checkhealth midspan")
    return str(poll(lambda: scripted.editor.text if "Keys" in scripted.editor.text else "", "checkhealth did not end"))


def completions(scripted: Scripted, typed: str) -> list[str]:
    found: list[str] = scripted.editor.lua("return vim.fn.getcompletion(..., 'cmdline')", typed)
    return found


def test_every_action_is_completed_and_what_may_follow_it(scripted: Scripted) -> None:
    assert completions(scripted, "Midspan ") == COMMANDS
    assert completions(scripted, "Midspan re") == ["reject", "restart"]
    assert completions(scripted, "Midspan toggle ") == ["buffer"]
    assert completions(scripted, "Midspan edit t") == ["touch_up"]
    assert completions(scripted, "2,3Midspan edit ") == ["refill", "touch_up"]
    assert completions(scripted, "Midspan accept ") == ["all"]


def test_an_unknown_action_is_answered_with_those_there_are(scripted: Scripted) -> None:
    scripted.editor.nvim.command("Midspan frobnicate")
    scripted.until_told('no action "frobnicate"; there are accept, edit, holes')


def test_the_log_opens_in_a_tab(scripted: Scripted) -> None:
    scripted.editor.nvim.command("Midspan log")
    assert str(scripted.editor.nvim.current.buffer.name).endswith("lsp.log")
    assert len(scripted.editor.nvim.tabpages) == 2


def test_the_help_opens_at_its_tags(scripted: Scripted, tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "editors" / "nvim" / "doc", tmp_path / "doc")
    scripted.editor.nvim.command(f"helptags {tmp_path / 'doc'}")  # fails where a tag stands twice
    scripted.editor.lua("vim.opt.runtimepath:prepend(...)", str(tmp_path))
    for tag in (":Midspan", "<Plug>(midspan-hunk-accept-all)", "g:midspan_enabled", "midspan-trouble"):
        scripted.editor.nvim.command(f"help {tag}")
        assert f"*{tag}*" in scripted.editor.line


def test_the_help_has_its_tags_wherever_they_can_be_written(scripted: Scripted, tmp_path: Path) -> None:
    for name, mode in (("writable", 0o755), ("read-only", 0o555)):
        folder = tmp_path / name
        for part in ("doc", "plugin"):
            shutil.copytree(REPOSITORY / "editors" / "nvim" / part, folder / part, ignore=lambda *_: ["tags"])
        (folder / "doc").chmod(mode)
        scripted.editor.lua("vim.g.loaded_midspan = nil vim.v.errmsg = ''")
        scripted.editor.nvim.command(f"source {folder / 'plugin' / 'midspan.lua'}")
        assert scripted.editor.lua("return vim.v.errmsg") == ""
    assert "*midspan-trouble*" in (tmp_path / "writable" / "doc" / "tags").read_text()
    scripted.editor.lua("vim.opt.runtimepath:prepend(...)", str(tmp_path / "writable"))
    scripted.editor.nvim.command("help midspan")
    assert "*midspan" in scripted.editor.text


def test_a_program_that_is_missing_is_told_once(scripted: Scripted) -> None:
    scripted.editor.lua("vim.lsp.config('midspan', { cmd = { 'no-such-midspan', 'lsp' } })")
    for name in ("b.lua", "b.py", "c.py"):
        scripted.editor.nvim.command(f"edit {name}")
    scripted.until_told("`no-such-midspan` is not executable; :checkhealth midspan")
    assert len(scripted.messages) == 1


def test_a_server_that_is_starting_is_not_called_missing(scripted: Scripted) -> None:
    scripted.hold("initialize")
    scripted.editor.lua("vim.lsp.get_clients({ name = 'midspan' })[1].name = 'another'")
    scripted.editor.nvim.command("Midspan status")
    scripted.until_told("no language server is attached; :checkhealth midspan")
    scripted.editor.lua("vim.lsp.start({ name = 'midspan', cmd = vim.lsp.config.midspan.cmd })")
    for command in ("Midspan status", "Midspan edit refill"):
        scripted.editor.lua("messages = {}")
        scripted.editor.nvim.command(command)
        scripted.until_told("Midspan: the language server is starting")


def test_no_key_is_taken_even_with_a_server_attached_and_all_modules_loaded(scripted: Scripted) -> None:
    taken = scripted.editor.lua("""
        local source = vim.api.nvim_get_runtime_file("lua/midspan/init.lua", false)[1]
        local folder = vim.fs.dirname(vim.fs.dirname(vim.fs.dirname(source)))
        for file in vim.fs.dir(vim.fs.dirname(source)) do
          require("midspan." .. file:gsub("%.lua$", ""))
        end
        local found = {}
        for _, mode in ipairs({ "n", "i", "x", "s", "o", "c", "t" }) do
          local maps = vim.list_extend(vim.api.nvim_get_keymap(mode), vim.api.nvim_buf_get_keymap(0, mode))
          for _, map in ipairs(maps) do
            local origin = map.callback and debug.getinfo(map.callback, "S").source or ""
            local is_ours = vim.startswith(origin, "@" .. folder) or (map.rhs or ""):find("Midspan")
            if is_ours and not vim.startswith(map.lhs, "<Plug>") then table.insert(found, map.lhs) end
          end
        end
        return found
    """)
    assert taken == []


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_is_loaded_before_a_server_is_wanted(version: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    print_loaded = """lua
        local is_ours = function(name) return vim.startswith(name, "midspan") end
        local names = vim.tbl_filter(is_ours, vim.tbl_keys(package.loaded))
        io.write(vim.json.encode({ vim.g.loaded_midspan, #names, vim.fn.exists(":Midspan") }))
    """.replace("\n", " ")
    command = [*nvim_arguments(tmp_path / "a.txt", "--headless", version=version), "-c", print_loaded, "-c", "qall!"]
    done = subprocess.run(command, env=own_environment(tmp_path), capture_output=True, text=True, timeout=DEADLINE_S)
    assert json.loads(done.stdout) == [True, 0, 2], done.stderr


def test_all_is_well(scripted: Scripted) -> None:
    report = health(scripted)
    assert "the checkpoint edits by refill, touch_up and follows no instructions" in report
    assert "no other plugin that draws ghost text was found" in report
    assert "ERROR" not in report


def test_a_file_that_is_left_alone_is_named_with_the_reason(scripted: Scripted) -> None:
    reason = "the file is excluded by '*.py' (midspan.excluded_globs)"
    uri = scripted.editor.lua("return vim.uri_from_bufnr(0)")
    scripted.editor.lua("local uri, reason = ... left = { [uri] = reason }", uri, reason)
    scripted.answer("midspan/status", "function() return { state = 'ready', left_alone = left } end")
    report = health(scripted)
    assert f"a.py: {reason}" in report
    assert "midspan-settings" in report


def test_a_language_that_no_server_is_asked_for_is_named(scripted: Scripted) -> None:
    scripted.editor.lua("vim.cmd.edit('b.lua')")
    report = health(scripted)
    assert "b.lua: the language lua is not one of those asked for (python)" in report
    assert 'filetypes = { "lua" }' in report


def test_versions_that_differ_are_told_with_what_to_run(scripted: Scripted) -> None:
    scripted.editor.lua("vim.lsp.get_clients({ name = 'midspan' })[1].server_info.version = '0.0.9'")
    engine = "{ state = 'ready', checkpoint = 'c', device = 'cpu', pid = 1, version = '0.0.8' }"
    scripted.answer("midspan/status", f"{{ state = 'ready', engine = {engine}, engine_error = vim.NIL }}")
    report = health(scripted)
    assert "the running server is version 0.0.9, the installed program 0." in report
    assert ":Midspan restart" in report
    assert "the engine is version 0.0.8, the server 0.0.9" in report
    assert "midspan engine stop" in report


def test_an_engine_that_failed_is_told_with_its_reason(scripted: Scripted) -> None:
    scripted.answer(
        "midspan/status", "{ state = 'failed', reason = 'no weights', engine = vim.NIL, engine_error = 'no weights' }"
    )
    report = health(scripted)
    assert "engine: no weights" in report
    assert "midspan fill FILE" in report


def test_a_missing_program_is_told_with_how_to_install_or_name_it(scripted: Scripted) -> None:
    scripted.editor.lua("vim.lsp.config('midspan', { cmd = { 'no-such-midspan', 'lsp' } })")
    report = health(scripted)
    assert "no-such-midspan is not an executable that Neovim can find" in report
    assert "make setup" in report


def test_a_server_that_cannot_edit_is_named_as_too_old(scripted: Scripted) -> None:
    missing = "function() return nil, { code = -32601, message = 'method not found' } end"
    scripted.answer("midspan/editPresets", missing)
    assert "this server cannot edit" in health(scripted)
    scripted.editor.nvim.command("bdelete")
    scripted.editor.nvim.command("Midspan edit refill")
    scripted.until_told("install a newer midspan")


def test_another_plugin_with_ghost_text_is_named_with_how_to_switch_it_off(scripted: Scripted) -> None:
    scripted.editor.nvim.command("command Copilot echo")
    scripted.editor.lua("""
        local serve = vim.lsp.get_clients({ name = "midspan" })[1].config.cmd
        vim.lsp.start({ name = "rival", cmd = serve })
        vim.wait(5000, function() return #vim.lsp.get_clients({ name = "rival", bufnr = 0 }) > 0 end)
    """)
    report = health(scripted)
    assert "the plugin with the command :Copilot draws ghost text too" in report
    assert "the language server rival draws ghost text too" in report


def test_an_older_neovim_is_told_what_to_install(scripted: Scripted) -> None:
    scripted.editor.lua("vim.fn.has = function() return 0 end")
    assert "Install Neovim 0.11 or newer" in health(scripted)


def test_suggestions_that_are_switched_off_are_told(scripted: Scripted) -> None:
    scripted.editor.nvim.command("Midspan toggle")
    assert "suggestions are switched off" in health(scripted)
