"""What the README says of VS Code, done by a new user in a profile with nothing in it, whose folder is not trusted."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from polling import first_value, poll
from sample import LINE, split_sample
from window import ARTEFACTS, STATUS_ITEM, Window, ghost_of
from workbench import PROGRAMS, REPOSITORY, START_S, USER_SETTINGS, Workbench, run_midspan

if TYPE_CHECKING:
    from playwright.sync_api import Page, Playwright

pytestmark = pytest.mark.e2e

_PATIENCE_S = 4.0
"""For the ghost text after a letter: VS Code itself gives up after less than one second. Chosen."""


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder with a short name: sockets lie in it."""
    with tempfile.TemporaryDirectory(prefix="ms-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def test_the_readmes_steps_lead_to_ghost_text_in_a_new_users_profile(
    playwright: Playwright, home: Path, vsix: Path, tmp_path: Path
) -> None:
    steps = (REPOSITORY / "README.md").read_text().partition("**VS Code")[2].partition("| | |")[0]
    told = re.search(r"^code --install-extension (\S+)$", steps, re.MULTILINE)
    assert told is not None
    assert REPOSITORY / told[1] == vsix
    assert re.search(r"open a Python file.*`midspan` from the PATH", steps, re.DOTALL)
    head, tail = split_sample()
    file = tmp_path / "inventory.py"
    file.write_text(f"{head}            \n{tail}")
    with Workbench.running(playwright, home, vsix, settings=None) as workbench:
        page = workbench.page(workbench.context(), tmp_path)
        page.get_by_role("treeitem", name="inventory.py").dblclick()
        page.locator(f"{STATUS_ITEM}[aria-label*='Midspan is ready']").wait_for()
        go_to(page, head.count("\n") + 1)
        typed, ghost = type_until_ghost(page)
        page.screenshot(path=ARTEFACTS / "vscode-setup.png")
        page.keyboard.press("Tab")
        wanted = f"{head}            {typed}{ghost}\n{tail}"
        poll(lambda: saved(page, file) == wanted, lambda: f"not {wanted!r} but {file.read_text()!r}")
        run_midspan(workbench, "engine", "stop")


def test_a_workspace_that_is_not_trusted_names_no_program_and_no_checkpoint(
    playwright: Playwright, home: Path, vsix: Path, tmp_path: Path
) -> None:
    named, own = tmp_path / "named", tmp_path / ".venv" / "bin" / "midspan"
    own.parent.mkdir(parents=True)
    for program in (named, own):
        program.symlink_to(PROGRAMS / "midspan")
    (tmp_path / "a.py").write_text("x = 1\n")
    settings = {**USER_SETTINGS, "security.workspace.trust.enabled": True}
    theirs = {"path": str(named), "checkpoint": "/nowhere"}
    with (
        Workbench.running(playwright, home, vsix, settings) as workbench,
        Window.on(workbench, workbench.context(), tmp_path, **theirs) as window,
    ):
        window.run("await vscode.window.showTextDocument(vscode.Uri.file(values[0]))", str(tmp_path / "a.py"))
        window.wait_for_server()
        assert window.program == str(home / ".local" / "bin" / "midspan")
        assert window.setting("checkpoint") is None
        window.run("await vscode.workspace.getConfiguration('midspan').update('path', undefined, false)")
        window.run("process.env.PATH = ''")
        window.command("midspan.restart")
        window.wait_for_status("failed: The program midspan is not on PATH, and what this workspace names counts only")
        window.page.get_by_role("button", name="Manage Trust").click()
        window.page.get_by_role("button", name="Trust", exact=True).click()
        poll(lambda: window.program == str(own), lambda: f"trusted, but {window.program} runs")
        assert window.setting("checkpoint") == "/nowhere"


def saved(page: Page, file: Path) -> str:
    """Saves the file that is open and returns what is in it."""
    page.keyboard.press("Control+s")
    return file.read_text()


def go_to(page: Page, number: int) -> None:
    """Puts the cursor at the end of a line (1-based), with keys."""
    page.keyboard.press("Control+g")
    page.locator(".quick-input-widget input").first.wait_for()
    page.keyboard.type(str(number))
    page.keyboard.press("Enter")
    page.locator('[id="status.editor.selection"]').filter(has_text=f"Ln {number},").wait_for()
    page.keyboard.press("End")


def ghost_alone(page: Page) -> str:
    """Returns the ghost text, nothing while VS Code's own list is open: Tab would take what the list has."""
    return "" if page.locator(".suggest-widget.visible").count() else ghost_of(page).rstrip()


def type_until_ghost(page: Page) -> tuple[str, str]:
    """Types the line that the sample lacks until the rest of it is offered, as often as it takes; returns both."""
    letters = LINE.strip().partition("(")[0]  # up to what VS Code would close by itself

    def found() -> tuple[str, str] | None:
        for n, letter in enumerate(letters, 1):
            page.keyboard.type(letter)
            if ghost := first_value(lambda: ghost_alone(page), _PATIENCE_S):
                return letters[:n], ghost
        for _ in letters:
            page.keyboard.press("Backspace")
        return None

    def failure() -> str:
        page.screenshot(path=ARTEFACTS / "vscode-setup.png")
        return f"no ghost text; the status bar says {page.locator(STATUS_ITEM).get_attribute('aria-label')!r}"

    typed, ghost = poll(found, failure, START_S)
    return typed, ghost
