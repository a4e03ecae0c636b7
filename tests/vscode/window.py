"""One window of VS Code as its user sees it (the page) and as an extension does (the probe)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from polling import first_value, poll
from workbench import REPOSITORY, START_S, Probe, Workbench

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

ARTEFACTS = REPOSITORY / ".cache" / "artifacts"

UNASKED_S = 15.0
"""VS Code asks at no key that comes before the extension is registered for the document; then the test asks by hand."""

_ASK = """
const { client } = vscode.extensions.getExtension("midspan.midspan").exports;
return await client.sendRequest(values[0], values[1]);
"""

STATUS_ITEM = '[id="midspan.midspan.midspan"]'

_NOTE_STATUS = f"""
const read = () => document.querySelector('{STATUS_ITEM}')?.ariaLabel ?? "";
window.said = [read()];
window.noting = new MutationObserver(() => window.said.push(read()));
const bar = document.querySelector(".part.statusbar");
window.noting.observe(bar, {{ attributes: true, childList: true, subtree: true }});
"""

# From an answer to its ghost text on the screen.
_TWO_FRAMES = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 200))))"

_LINE = "return document.lineAt(selection.active).text"

# 2 is State.Running of vscode-languageclient.
_IS_RUNNING = "return vscode.extensions.getExtension('midspan.midspan').exports?.client?.state === 2"

_PROGRAM = "return vscode.extensions.getExtension('midspan.midspan').exports?.client?.serverProcess?.spawnfile"

_OPEN = """
const document = await vscode.workspace.openTextDocument(values[0]);
const editor = await vscode.window.showTextDocument(document, { preview: false });
const end = document.lineAt(values[1]).range.end;
editor.selection = new vscode.Selection(end, end);
editor.revealRange(new vscode.Range(end, end), vscode.TextEditorRevealType.InCenter);
"""

_INSERT = """
const document = await vscode.workspace.openTextDocument(values[0]);
const edit = new vscode.WorkspaceEdit();
edit.insert(document.uri, document.positionAt(values[1]), values[2]);
await vscode.workspace.applyEdit(edit);
"""

_CLEAR = """
for (let n = 0; n < 20 && vscode.window.tabGroups.all.some(({ tabs }) => tabs.length); n++) {
  await vscode.commands.executeCommand("workbench.action.revertAndCloseActiveEditor");
}
await vscode.commands.executeCommand("workbench.action.closePanel");
await vscode.commands.executeCommand("notifications.clearAll");
for (const key of ["enabled", "disabled_languages"])
  await vscode.workspace.getConfiguration("midspan").update(key, undefined, true);
"""

_SETTINGS = {"midspan.min_confidence": 0, "midspan.deadline_ms": 20_000, "midspan.workspace_files": False}
"""These tests are about the editor: what the engine finds is shown, however unsure it is and busy the machine. The
files that other tests have left in the folder are not looked at: they are copies of each other.
"""


class Window:
    """A window with one folder open; the file under test is the active editor."""

    def __init__(self, workbench: Workbench, page: Page, probe: Probe) -> None:
        self.workbench = workbench
        self.page = page
        self.probe = probe

    @property
    def folder(self) -> Path:
        return Path(self.probe.folder)

    @classmethod
    @contextmanager
    def on(cls, workbench: Workbench, context: BrowserContext, folder: Path, **settings: object) -> Iterator[Window]:
        """Opens a window on `folder`, whose workspace has these settings, while the block lasts."""
        write_settings(folder, **settings)
        page, probe = workbench.open(context, folder)
        try:
            yield cls(workbench, page, probe)
        finally:
            probe.close()
            page.close()

    # The extension host

    def run(self, code: str, *values: object) -> Any:
        """Runs the body of an async function in the extension host; it sees `vscode` and `values`."""
        return self.probe.run(code, *values)

    def command(self, name: str, *values: object) -> Any:
        """Runs a command of VS Code and returns its value."""
        return self.run("return await vscode.commands.executeCommand(...values)", name, *values)

    def click_status(self) -> None:
        """Clicks the item in the status bar and goes back to the editor."""
        self.page.locator(STATUS_ITEM).click()
        self.page.mouse.move(550, 300)  # the item's hover would lie over notifications
        self.command("workbench.action.focusActiveEditorGroup")
        self.page.locator(".monaco-editor.focused").first.wait_for()

    def start(self, name: str, *values: object) -> None:
        """Runs a command that waits for the user, without waiting for it."""
        self.run("vscode.commands.executeCommand(...values).then(undefined, console.error)", name, *values)

    def ask(self, method: str, params: object) -> Any:
        """Sends a request to the language server."""
        return self.run(_ASK, method, params)

    def open(self, file: Path, line: int) -> None:
        """Opens a file with the cursor at the end of a line (0-based), once its language server answers."""
        self.run(_OPEN, str(file), line)
        self.wait_for_cursor(line)
        self.wait_for_server()
        poll(self._is_answering, "VS Code did not ask the server", START_S)
        self.command("editor.action.inlineSuggest.hide")

    def _is_answering(self) -> bool:
        """Asks by hand unless the server was asked before: it runs before VS Code knows what it offers."""
        if self._n_answered() == 0:
            self.command("editor.action.inlineSuggest.trigger")
        return self._n_answered() > 0

    def wait_for_cursor(self, line: int) -> None:
        """Waits until keys go to an editor whose cursor is on a line (0-based)."""
        self.page.locator(".monaco-editor.focused").first.wait_for()
        self.page.locator('[id="status.editor.selection"]').filter(has_text=f"Ln {line + 1},").wait_for()

    def wait_for_server(self) -> None:
        """Waits until the language server runs."""
        poll(
            lambda: self.run(_IS_RUNNING),
            lambda: f"the server did not start: {self.status!r}; the log: {self.workbench.log}",
            START_S,
        )

    @property
    def program(self) -> str | None:
        """The path of the language server's program; None while it does not run."""
        program: str | None = self.run(_PROGRAM)
        return program

    def clear(self) -> None:
        """Leaves the window as it was opened: no file, no notification, the settings of the tests."""
        self.run(_CLEAR)
        write_settings(self.folder)

    def setting(self, name: str) -> Any:
        """Returns a setting of Midspan as it is in force."""
        return self.run("return vscode.workspace.getConfiguration('midspan').get(values[0])", name)

    @property
    def text(self) -> str:
        """The text of the active editor, with its line ends."""
        return str(self.run("return vscode.window.activeTextEditor.document.getText()"))

    @property
    def line(self) -> str:
        """The line that the cursor is on."""
        return str(self.run("const { document, selection } = vscode.window.activeTextEditor; " + _LINE))

    def select(self, *ranges: Sequence[int]) -> None:
        """Selects one range (line, column, line, column; 0-based) or several."""
        code = "vscode.window.activeTextEditor.selections = values.map((each) => new vscode.Selection(...each))"
        self.run(code, *ranges)

    def insert(self, file: Path, offset: int, text: str) -> None:
        """Puts text into an open file, as another extension may."""
        self.run(_INSERT, str(file), offset, text)

    # The page

    @property
    def ghost(self) -> str:
        """The ghost text on the screen."""
        return ghost_of(self.page)

    def press(self, *keys: str) -> None:
        """Presses keys, named as in browsers: `Tab`, `Control+z`."""
        for key in keys:
            self.page.keyboard.press(key)

    def type(self, text: str) -> None:
        """Types text and waits until the extension host has it."""
        version = self.version
        self.page.keyboard.type(text)
        poll(lambda: self.version >= version + len(text), lambda: f"{text!r} was not typed; line {self.line!r}")

    @property
    def version(self) -> int:
        """The version of the document in the active editor."""
        return int(self.run("return vscode.window.activeTextEditor.document.version"))

    @property
    def counts(self) -> dict[str, int]:
        """What the server has counted so far."""
        counted: dict[str, int] = self.ask("midspan/status", {})["counts"]
        return counted

    def find_ghost(self, text: str) -> str:
        """Types `text` letter by letter until a suggestion appears and returns it; empty when there is none."""
        for letter in text:
            if ghost := self._ghost_after(letter):
                return ghost
        return ""

    def _ghost_after(self, letter: str) -> str:
        before = self._n_answered()
        with self.noting_status() as said:

            def is_answered() -> bool:
                return bool(self.ghost) or self._n_answered() > before or _is_over(said())

            self.type(letter)
            if not first_value(is_answered, UNASKED_S):
                self.command("editor.action.inlineSuggest.trigger")
                poll(is_answered, lambda: f"{letter!r} was not answered: {self.status}", START_S)
        if self._n_answered() == before:  # VS Code withdraws what takes longer than 750 ms after a key
            self.command("editor.action.inlineSuggest.trigger")
        return self._settled_ghost()

    def type_until_ghost(self, text: str) -> str:
        """Types `text` letter by letter until a suggestion appears; fails, with the server's reason, when none does."""
        ghost = self.find_ghost(text)
        if not ghost:
            self.screenshot("no-ghost")
            pytest.fail(f"nothing was suggested up to {self.line!r}: {self.status}; {self.ask('midspan/status', {})}")
        return ghost

    def ghost_on_demand(self) -> str:
        """Asks for a suggestion by hand, as often as it takes on a busy machine, and returns the ghost text."""

        def asked() -> str:
            self.command("editor.action.inlineSuggest.trigger")
            return self._settled_ghost()

        return str(poll(asked, lambda: f"no ghost text at {self.line!r}: {self.ask('midspan/status', {})}"))

    def _settled_ghost(self) -> str:
        """Returns the ghost text once it is drawn, or nothing when the last answer was a silence."""
        if not self.ghost and self.ask("midspan/status", {})["state"] == "ready":
            # It may have come too late to be shown.
            self.page.evaluate(_TWO_FRAMES)
        return self.ghost

    def _n_answered(self) -> int:
        counts = self.counts
        return sum(counts.get(each, 0) for each in ("suggested", "silent", "off", "failed"))

    @property
    def status(self) -> str:
        """What the item in the status bar says to a screen reader: its text and its tooltip."""
        item = self.page.locator(STATUS_ITEM)
        return (item.get_attribute("aria-label") or "") if item.count() else ""

    @contextmanager
    def noting_status(self) -> Iterator[Callable[[], list[str]]]:
        """Yields the function that returns all that the item in the status bar has said since the block began."""
        self.page.evaluate(_NOTE_STATUS)
        yield lambda: list(self.page.evaluate("window.said"))
        self.page.evaluate("window.noting.disconnect()")

    def wait_for_status(self, words: str, deadline_s: float = START_S) -> None:
        """Waits until the item in the status bar says something."""
        poll(
            lambda: words in self.status,
            lambda: f"the status bar says {self.status!r}, not {words!r}; the log: {self.workbench.log}",
            deadline_s,
        )

    def wait_for_message(self, words: str) -> None:
        """Waits for a notification."""
        self.page.locator(".notification-list-item-message").filter(has_text=words).first.wait_for()

    @property
    def messages(self) -> list[str]:
        """The notifications on the screen."""
        return self.page.locator(".notification-list-item-message").all_inner_texts()

    def screenshot(self, name: str) -> Path:
        """Keeps a picture of the window in .cache/artifacts."""
        ARTEFACTS.mkdir(parents=True, exist_ok=True)
        path = ARTEFACTS / f"vscode-{name}.png"
        self.page.screenshot(path=path)
        return path


def ghost_of(page: Page) -> str:
    """Returns the ghost text on the screen, its lines joined by line feeds; empty when there is none."""
    lines = page.locator(".view-line, .suggest-preview-text .view-line").filter(has=page.locator(_GHOST)).all()
    return "\n".join("".join(line.locator(_GHOST).all_text_contents()) for line in lines).replace("\xa0", " ")


def _is_over(said: list[str]) -> bool:
    """Says whether a request was seen to run and runs no more."""
    is_busy = ["is looking for a suggestion" in each for each in said]
    return any(is_busy) and not is_busy[-1]


def write_settings(folder: Path, **settings: object) -> None:
    """Writes the settings of a workspace: those of the tests, and these of Midspan."""
    own = {**_SETTINGS, **{f"midspan.{name}": value for name, value in settings.items()}}
    (folder / ".vscode").mkdir(exist_ok=True)
    (folder / ".vscode" / "settings.json").write_text(json.dumps(own))


_GHOST = ", ".join(f".{name}" for name in ("ghost-text-decoration", "ghost-text", "ghost-text-decoration-preview"))
