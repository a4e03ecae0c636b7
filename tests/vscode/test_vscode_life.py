"""The life of server and engine behind a real VS Code: found, installed, shared, killed, switched off, explained."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from polling import poll
from sample import LINE, split_sample
from window import Window
from workbench import PROGRAMS, START_S, Workbench, files_of, run_midspan

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext

pytestmark = pytest.mark.e2e


@pytest.fixture
def path_of_the_host(shared_window: Window) -> Iterator[None]:
    """Gives the extension host its PATH back."""
    path = shared_window.run("return process.env.PATH")
    yield
    shared_window.run("process.env.PATH = values[0]", path)
    shared_window.command("midspan.restart")


def processes(workbench: Workbench, words: str) -> list[int]:
    """Returns the processes of this workbench with these words in their command line."""
    home = f"HOME={workbench.folders.home}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ")
            if words.encode() in command and home in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
        except OSError:
            continue  # it has ended
    return found


def engine_pid(workbench: Workbench) -> int | None:
    engine = run_midspan(workbench, "status")["engine"]
    return None if engine is None else int(engine["pid"])


def test_the_package_holds_what_the_extension_needs_and_nothing_else(vsix: Path) -> None:
    inside = {name.removeprefix("extension/") for name in files_of(vsix) if name.startswith("extension/")}
    assert inside == {
        "LICENSE.txt",
        "package.json",
        "readme.md",
        "dist/NOTICES.txt",
        "dist/extension.js",
        "media/canvas.css",
        "media/canvas.js",
    }


def test_the_server_starts_with_the_first_document_that_it_completes(
    workbench: Workbench, context: BrowserContext, tmp_path: Path
) -> None:
    (tmp_path / "notes.md").write_text("# Notes\n")
    (tmp_path / "a.py").write_text("x = 1\n")
    before = set(processes(workbench, "midspan lsp"))
    with Window.on(workbench, context, tmp_path) as opened:
        opened.run("await vscode.window.showTextDocument(vscode.Uri.file(values[0]))", str(tmp_path / "notes.md"))
        poll(lambda: opened.run("return vscode.extensions.getExtension('midspan.midspan').isActive"), "not activated")
        assert not opened.run("return !!vscode.extensions.getExtension('midspan.midspan').exports.client")
        opened.start("midspan.watchCanvas")
        opened.wait_for_message("Midspan starts with the first file in a language that it completes: python.")
        opened.open(tmp_path / "a.py", 0)
        opened.wait_for_status("is ready")
        (started,) = set(processes(workbench, "midspan lsp")) - before
    poll(lambda: started not in processes(workbench, "midspan lsp"), "the server outlived its window", START_S)


def test_two_windows_share_one_engine(
    window: Window, workbench: Workbench, context: BrowserContext, tmp_path: Path
) -> None:
    window.type_until_ghost(LINE.strip())
    before = set(processes(workbench, "midspan lsp"))
    head, tail = split_sample()
    file = tmp_path / "other.py"
    file.write_text(f"{head}            \n{tail}")
    with Window.on(workbench, context, tmp_path) as second:
        second.open(file, head.count("\n"))
        second.type_until_ghost(LINE.strip())
        assert len(set(processes(workbench, "midspan lsp")) - before) == 1, "a server for each window"
        assert processes(workbench, "midspan_engine host") == [engine_pid(workbench)]


def test_a_killed_engine_is_started_again_and_its_loading_is_shown(
    window: Window, workbench: Workbench, project: Path
) -> None:
    window.type_until_ghost(LINE.strip())
    killed = engine_pid(workbench)
    assert killed is not None
    with window.noting_status() as said:
        os.kill(killed, signal.SIGKILL)
        # In an unchanged text the suggestion would be recalled, which needs no engine.
        window.insert(project, 0, "# another text\n")
        assert window.ghost_on_demand()
        assert any("is loading the model" in each and "%" in each for each in said()), said()
    assert engine_pid(workbench) not in (None, killed)
    window.wait_for_status("is ready")


def test_while_a_request_runs_the_status_bar_says_so(window: Window) -> None:
    with window.noting_status() as said:
        window.type("r")
        poll(lambda: any("is looking for a suggestion" in each for each in said()), lambda: str(said()))


def test_a_silence_is_explained_in_the_status_bar(window: Window) -> None:
    window.select([0, 3, 0, 3])
    window.wait_for_cursor(0)
    window.type("x")
    window.wait_for_status("has no suggestion: ")


def test_clicking_the_status_item_switches_suggestions_off_and_on(window: Window) -> None:
    window.click_status()
    window.wait_for_status("is off: midspan.enabled is false")
    assert window.setting("enabled") is False
    window.screenshot("off")
    window.type("r")
    poll(lambda: window.ask("midspan/status", {})["state"] == "off", "the server was not told")
    assert not window.ghost
    window.click_status()
    window.wait_for_status("Midspan is ready")
    assert window.setting("enabled") is True


def test_suggestions_are_switched_off_in_one_language(window: Window) -> None:
    window.command("midspan.toggleLanguage")
    window.wait_for_status("is off: midspan.disabled_languages holds python")
    window.type("r")
    poll(lambda: window.ask("midspan/status", {})["state"] == "off", "the server was not told")
    assert not window.ghost
    window.command("midspan.toggleLanguage")
    window.wait_for_status("Midspan is ready")
    assert window.setting("disabled_languages") == []


def test_restart_brings_a_new_server_that_suggests_again(window: Window, workbench: Workbench) -> None:
    window.type_until_ghost(LINE.strip())
    old = processes(workbench, "midspan lsp")
    window.command("midspan.restart")
    poll(lambda: not set(old) & set(processes(workbench, "midspan lsp")), "the old server stayed")
    window.wait_for_server()
    assert window.ghost_on_demand()


def test_the_log_is_shown(window: Window) -> None:
    window.command("midspan.showLog")
    shown = (
        "return vscode.workspace.textDocuments.filter(({ uri }) => uri.scheme === 'output').map(({ uri }) => uri.path)"
    )
    poll(lambda: any("Midspan" in path for path in window.run(shown)), lambda: f"shown: {window.run(shown)}")
    window.page.locator(".part.panel .monaco-editor").first.wait_for()


def test_a_missing_server_is_told_with_how_to_install_it_and_found_in_the_venv(
    window: Window, path_of_the_host: None
) -> None:
    window.run("process.env.PATH = ''")
    window.command("midspan.restart")
    window.wait_for_status("failed: The program midspan is neither on PATH nor in the workspace's .venv")
    window.page.get_by_role("button", name="Open Setting").wait_for()
    window.page.get_by_role("button", name="How to install").click()
    window.page.get_by_role("tab", name="Preview readme.md").wait_for()
    window.command("workbench.action.closeActiveEditor")
    programs = window.folder / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "midspan").symlink_to(PROGRAMS / "midspan")
    window.command("midspan.restart")
    window.wait_for_server()
    window.wait_for_status("Midspan is ready")
    shutil.rmtree(window.folder / ".venv")


def test_a_wrong_path_is_named_and_its_setting_opened(window: Window) -> None:
    window.run("await vscode.workspace.getConfiguration('midspan').update('path', '/nowhere/midspan', false)")
    window.wait_for_status('failed: midspan.path is "/nowhere/midspan"')
    window.page.get_by_role("button", name="Open Setting").click()
    window.page.locator(".settings-editor").wait_for()
    window.run("await vscode.workspace.getConfiguration('midspan').update('path', 'midspan', false)")
    window.wait_for_status('failed: midspan.path is "midspan"; it must be an absolute path')
    window.run("await vscode.workspace.getConfiguration('midspan').update('path', undefined, false)")
    window.wait_for_server()


def test_a_program_named_in_the_settings_is_started_instead_of_the_one_on_path(
    window: Window, workbench: Workbench, tmp_path: Path
) -> None:
    named = tmp_path / "named-midspan"
    named.write_text(f'#!/bin/sh\nexec "{PROGRAMS / "midspan"}" "$@"\n')
    named.chmod(0o755)
    update = "await vscode.workspace.getConfiguration('midspan').update('path', values[0] || undefined, false)"
    window.run(update, str(named))
    poll(lambda: window.program == str(named), "the named program was not started")
    window.wait_for_server()
    assert window.type_until_ghost(LINE.strip())
    window.run(update, "")
    window.wait_for_server()


def test_the_extension_runs_on_the_side_of_the_files(window: Window) -> None:
    """The workbench is a page, so its extension host is a remote one, as over SSH or in WSL."""
    found = window.run("return [vscode.extensions.getExtension('midspan.midspan').extensionKind, vscode.env.uiKind]")
    assert found == [2, 2], "ExtensionKind.Workspace, UIKind.Web"


def test_every_command_of_the_extension_is_in_a_test() -> None:
    manifest = json.loads((Path(__file__).parents[2] / "editors" / "vscode" / "package.json").read_text())
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    keys = {each["command"] for each in manifest["contributes"]["keybindings"]}
    # The item in the status bar runs this one.
    elsewhere = {"midspan.toggle"} | keys
    names = {each["command"] for each in manifest["contributes"]["commands"]}
    assert {name for name in names - elsewhere if f'"{name}"' not in tests} == set()
