"""Edits of a selection and holes in a real VS Code: asked for, previewed, accepted hunk by hunk or in one step."""

from __future__ import annotations

import ast
import os
import re
import signal
from pathlib import Path

import pytest
from polling import poll
from sample import with_holes
from window import Window
from workbench import Workbench, run_midspan

pytestmark = pytest.mark.e2e

HOLES = with_holes(("if quantity <= 0:", "if ___:"), ("item = self.items[name]", "item = ___"))
"""Both are written out a few lines above, so the model knows them."""
DAMAGED = with_holes(("quantity must be positive", "quantity"))
FIRST, SECOND = (n for n, line in enumerate(HOLES.split("\n")) if "___" in line)
PREVIEW = "const uri = vscode.window.activeTextEditor?.document.uri; return uri?.scheme === 'midspan-preview'"
SIDES = """
const { original, modified } = vscode.window.tabGroups.activeTabGroup.activeTab.input;
const [old, now] = await Promise.all([original, modified].map((uri) => vscode.workspace.openTextDocument(uri)));
return { old: old.getText(), now: now.getText() };
"""


@pytest.fixture
def file(shared_window: Window, request: pytest.FixtureRequest) -> Path:
    """A file with two holes."""
    path = shared_window.folder / f"{request.node.name}.py"
    path.write_text(HOLES)
    return path


@pytest.fixture
def window(bare_window: Window, file: Path) -> Window:
    """A window with that file open."""
    bare_window.open(file, FIRST)
    return bare_window


def previewed(window: Window) -> tuple[str, str]:
    """Waits for the diff and returns its two sides."""
    poll(lambda: window.run(PREVIEW), lambda: f"no preview: {window.messages}; {window.workbench.log}", 90)
    sides = window.run(SIDES)
    return sides["old"], sides["now"]


def text_of(window: Window, file: Path) -> str:
    return str(window.run("return (await vscode.workspace.openTextDocument(values[0])).getText()", str(file)))


def rewrite(window: Window, file: Path, text: str) -> None:
    """Gives the open file another text, as another program may."""
    file.write_text(text)
    poll(lambda: window.text == text, "VS Code did not read the file again")


def fill_all(window: Window) -> str:
    """Asks for the holes of the document and returns what they would become."""
    window.start("midspan.fillHoles")
    old, now = previewed(window)
    assert old == HOLES
    assert "___" not in now
    ast.parse(now)
    return now


def test_all_changes_of_a_preview_are_made_in_one_step_and_undone_in_one(window: Window, file: Path) -> None:
    proposed = fill_all(window)
    window.screenshot("preview")
    window.command("midspan.acceptAllChanges")
    poll(lambda: text_of(window, file) == proposed, "the changes were not made")
    poll(lambda: not window.run(PREVIEW), "the preview stayed open")
    window.wait_for_cursor(FIRST)
    window.press("Control+z")
    poll(lambda: text_of(window, file) == HOLES, "one undo did not take all of it back")


def test_a_change_is_accepted_and_another_rejected(window: Window, file: Path) -> None:
    proposed = fill_all(window)
    window.command("midspan.acceptChange")  # the cursor is on the first
    poll(lambda: text_of(window, file).count("___") == 1, "the first change was not made")
    _, now = previewed(window)
    assert now == proposed
    window.command("midspan.rejectChange")
    poll(lambda: not window.run(PREVIEW), "the preview stayed open")
    lines = proposed.split("\n")
    lines[SECOND] = HOLES.split("\n")[SECOND]
    assert text_of(window, file) == "\n".join(lines)


def test_the_keys_of_the_preview_work_on_the_change_at_the_cursor(window: Window, file: Path) -> None:
    proposed = fill_all(window)
    window.select([SECOND, 0, SECOND, 0])
    window.wait_for_cursor(SECOND)
    window.press("Alt+Enter")
    poll(lambda: text_of(window, file).count("___") == 1, "the second change was not made")
    assert text_of(window, file).split("\n")[SECOND] == proposed.split("\n")[SECOND]
    window.wait_for_cursor(SECOND)
    window.press("Alt+Backspace")
    poll(lambda: not window.run(PREVIEW), "the preview stayed open")
    assert text_of(window, file).count("___") == 1


def test_rejecting_all_changes_nothing(window: Window, file: Path) -> None:
    fill_all(window)
    window.command("midspan.rejectAllChanges")
    poll(lambda: not window.run(PREVIEW), "the preview stayed open")
    assert text_of(window, file) == HOLES


def test_a_text_that_moved_on_is_left_alone_with_a_message(window: Window, file: Path) -> None:
    fill_all(window)
    window.run(
        """
        const edit = new vscode.WorkspaceEdit();
        edit.insert(vscode.Uri.file(values[0]), new vscode.Position(0, 0), "# new\\n");
        await vscode.workspace.applyEdit(edit);
        """,
        str(file),
    )
    window.wait_for_message("the text has changed since")
    assert not window.run(PREVIEW)
    assert text_of(window, file) == f"# new\n{HOLES}"


def test_holes_are_filled_in_the_selection_alone(window: Window) -> None:
    window.select([FIRST, 0, FIRST + 1, 0])
    window.start("midspan.fillHoles")
    _, now = previewed(window)
    assert now.split("\n")[SECOND] == HOLES.split("\n")[SECOND]
    assert "___" not in now.split("\n")[FIRST]


def test_holes_are_filled_at_all_cursors(window: Window, file: Path) -> None:
    columns = {line: HOLES.split("\n")[line].index("___") for line in (FIRST, SECOND)}
    rewrite(window, file, HOLES.replace("___", ""))
    window.select(*([line, at, line, at] for line, at in columns.items()))
    window.start("midspan.fillHoles")
    old, now = previewed(window)
    assert [len(line) for line in now.split("\n")] != [len(line) for line in old.split("\n")]
    for line, at in columns.items():
        assert now.split("\n")[line][at:].strip(": "), f"line {line} got nothing"
    ast.parse(now)


def test_a_preset_picked_from_the_list_edits_the_selection(window: Window, file: Path) -> None:
    rewrite(window, file, DAMAGED)
    line = FIRST + 1
    window.select([line, 12, line, len(DAMAGED.split("\n")[line])])
    window.start("midspan.editSelection")
    titles = [each["title"] for each in window.ask("midspan/editPresets", {})["presets"]]
    rows = window.page.locator(".quick-input-widget .monaco-list-row")
    poll(lambda: [row.inner_text().strip() for row in rows.all()] == titles, lambda: f"{rows.all_inner_texts()}")
    window.screenshot("presets")
    window.page.keyboard.type("Rewrite")
    poll(lambda: rows.count() == 1, "the list was not filtered")
    window.press("Enter")
    old, now = previewed(window)
    assert old == DAMAGED
    assert now.split("\n")[line] == '            raise ValueError("quantity must be positive")'
    window.screenshot("edit")


def test_an_edit_is_cancelled_where_its_progress_is_shown(window: Window, workbench: Workbench, file: Path) -> None:
    pid = run_midspan(workbench, "status")["engine"]["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        window.start("midspan.fillHoles")
        window.page.locator(".notification-list-item").get_by_role("button", name="Cancel").click()
        poll(lambda: not window.messages, lambda: f"the progress stayed: {window.messages}")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert not window.run(PREVIEW)
    assert text_of(window, file) == HOLES


def test_an_edit_with_nothing_to_do_says_why(window: Window) -> None:
    window.start("midspan.editSelection")
    window.page.locator(".quick-input-widget .monaco-list-row").first.wait_for()
    window.press("Enter")
    window.wait_for_message("nothing is selected")


def test_a_code_action_opens_the_same_preview(window: Window, file: Path) -> None:
    window.run(
        """
        const uri = vscode.Uri.file(values[0]);
        const range = new vscode.Range(0, 0, 60, 0);
        const kind = "refactor.rewrite.midspan";
        const found = await vscode.commands.executeCommand("vscode.executeCodeActionProvider", uri, range, kind);
        const { command } = found.find(({ title }) => title.includes("holes"));
        vscode.commands.executeCommand(command.command, ...command.arguments);
        """,
        str(file),
    )
    old, now = previewed(window)
    assert old == HOLES
    assert "___" not in now


def test_the_canvas_is_watched_in_a_panel_while_it_settles(window: Window) -> None:
    window.command("midspan.watchCanvas")
    canvas = window.page.frame_locator("iframe.webview").frame_locator("iframe")
    canvas.locator("#caption").filter(has_text="appears here").wait_for()
    window.run("await vscode.window.showTextDocument(vscode.window.visibleTextEditors[0].document)")
    window.start("midspan.fillHoles")
    canvas.locator("#caption").filter(has_text="(last)").wait_for()
    kinds = {span.get_attribute("class") for span in canvas.locator("#canvas span").all()}
    assert "pin" in kinds
    assert "accepted" in kinds
    assert re.search(r"pass \d+ \(last\): \d+ of \d+ slots filled", canvas.locator("#caption").inner_text())
    assert "self.items" in canvas.locator("#canvas").inner_text()
    window.screenshot("canvas")


def test_while_the_panel_is_closed_no_draft_is_sent(window: Window) -> None:
    window.command("midspan.watchCanvas")
    window.page.frame_locator("iframe.webview").frame_locator("iframe").locator("#caption").wait_for()
    # The panel goes, so its place as the listener is free.
    window.run(
        """
        const tabs = vscode.window.tabGroups.all.flatMap(({ tabs }) => tabs);
        await vscode.window.tabGroups.close(tabs.filter(({ input }) => input instanceof vscode.TabInputWebview));
        globalThis.nDrafts = 0;
        const { client } = vscode.extensions.getExtension("midspan.midspan").exports;
        client.onNotification("midspan/draft", () => globalThis.nDrafts++);
        """
    )
    window.start("midspan.fillHoles")
    previewed(window)
    assert window.run("return globalThis.nDrafts") == 0
    window.command("midspan.restart")  # a new client, to which the panel listens again
    window.wait_for_server()
