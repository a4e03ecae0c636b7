"""Edits of a selection and holes in a real VS Code: asked for, previewed, accepted hunk by hunk or in one step."""

from __future__ import annotations

import ast
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from polling import poll
from sample import DOUBTFUL, HOLES, with_holes
from window import Window, write_settings
from workbench import Workbench, paused_engine, run_midspan

from midspan_server.launch import embedded_checkpoint

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext

pytestmark = pytest.mark.e2e

DAMAGED = with_holes(("quantity must be positive", "quantity"))
FIRST, SECOND = (n for n, line in enumerate(HOLES.split("\n")) if "___" in line)
PREVIEW = "const uri = vscode.window.activeTextEditor?.document.uri; return uri?.scheme === 'midspan-preview'"
SIDES = """
const { original, modified } = vscode.window.tabGroups.activeTabGroup.activeTab.input;
const [old, now] = await Promise.all([original, modified].map((uri) => vscode.workspace.openTextDocument(uri)));
return { old: old.getText(), now: now.getText() };
"""

_NOTE_REQUESTS = """
const { client } = vscode.extensions.getExtension("midspan.midspan").exports;
const send = client.sendRequest;
globalThis.asked = {};
client.sendRequest = function (method, ...values) {
  globalThis.asked[method] = values[0];
  return send.call(this, method, ...values);
};
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
    window.insert(file, 0, "# new\n")
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
    window.page.get_by_placeholder("this checkpoint follows no written instructions").wait_for()
    window.screenshot("presets")
    window.page.keyboard.type("Rewrite")
    poll(lambda: rows.count() == 1, "the list was not filtered")
    window.press("Enter")
    old, now = previewed(window)
    assert old == DAMAGED
    assert now.split("\n")[line] == '            raise ValueError("quantity must be positive")'
    window.screenshot("edit")


def test_an_edit_is_cancelled_where_its_progress_is_shown(window: Window, workbench: Workbench, file: Path) -> None:
    with paused_engine(workbench):
        window.start("midspan.fillHoles")
        window.page.locator(".notification-list-item").get_by_role("button", name="Cancel").click()
        poll(lambda: not window.messages, lambda: f"the progress stayed: {window.messages}")
    assert not window.run(PREVIEW)
    assert text_of(window, file) == HOLES


def test_the_progress_of_holes_is_told_pass_by_pass(window: Window, file: Path) -> None:
    rewrite(window, file, HOLES + DOUBTFUL)
    window.start("midspan.fillHoles")
    window.page.locator(".notification-list-item").filter(has_text=re.compile(r"filling holes.*pass \d+")).wait_for()
    previewed(window)


def test_a_change_moves_along_with_what_was_typed_elsewhere_meanwhile(
    window: Window, workbench: Workbench, file: Path
) -> None:
    with paused_engine(workbench):
        window.start("midspan.fillHoles")
        poll(lambda: window.messages, "nothing was asked")
        window.insert(file, 0, "# new\n")
    old, now = previewed(window)
    assert old == f"# new\n{HOLES}"
    assert "___" not in now


def test_a_change_is_declined_when_its_place_was_typed_in_meanwhile(
    window: Window, workbench: Workbench, file: Path
) -> None:
    with paused_engine(workbench):
        window.start("midspan.fillHoles")
        poll(lambda: window.messages, "nothing was asked")
        window.insert(file, HOLES.index("___") + 1, "x")
    window.wait_for_message("the text changed meanwhile; ask again")
    assert not window.run(PREVIEW)
    assert text_of(window, file) == HOLES.replace("___", "_x__", 1)


def test_a_marker_set_in_vs_code_is_a_hole(window: Window, file: Path) -> None:
    rewrite(window, file, HOLES.replace("___", "TODO"))
    write_settings(window.folder, hole_marker="TODO")
    params = {"textDocument": {"uri": file.as_uri(), "version": window.version}}
    poll(lambda: window.ask("midspan/holes", params)["edits"], "the server was not told of the marker")
    window.start("midspan.fillHoles")
    _, now = previewed(window)
    assert "TODO" not in now
    write_settings(window.folder)
    poll(lambda: not window.ask("midspan/holes", params)["edits"], "the server was not told that it is none any more")


@pytest.mark.parametrize(
    ("first", "rest", "left"),
    [
        ("Accept Change at Cursor", "Reject All Changes", SECOND),
        ("Reject Change at Cursor", "Accept All Changes", FIRST),
    ],
)
def test_the_buttons_above_the_preview_accept_and_reject(
    window: Window, file: Path, first: str, rest: str, left: int
) -> None:
    def n_proposed() -> int:
        old, now = previewed(window)
        return sum(a != b for a, b in zip(old.split("\n"), now.split("\n"), strict=True))

    fill_all(window)
    assert n_proposed() == 2
    window.page.get_by_role("button", name=first).click()
    poll(lambda: n_proposed() == 1, f"{first} did nothing")
    window.page.get_by_role("button", name=rest).click()
    poll(lambda: not window.run(PREVIEW), "the preview stayed open")
    assert [n for n, line in enumerate(text_of(window, file).split("\n")) if "___" in line] == [left]


def test_where_the_checkpoint_follows_instructions_one_is_typed(
    workbench: Workbench, context: BrowserContext, tmp_path: Path
) -> None:
    checkpoint, folder = tmp_path / "checkpoint", tmp_path / "shop"
    shutil.copytree(embedded_checkpoint(), checkpoint)
    (checkpoint / "chat_template.jinja").write_text("user: {{ messages[0].content }}\nmodel: ")
    folder.mkdir()
    (folder / "a.py").write_text(DAMAGED)
    with Window.on(workbench, context, folder, checkpoint=str(checkpoint)) as window:
        window.open(folder / "a.py", FIRST + 1)
        window.select([FIRST + 1, 12, FIRST + 1, 40])
        window.run(_NOTE_REQUESTS)
        window.start("midspan.editSelection")
        window.page.get_by_placeholder("Say what to change, or choose").wait_for()
        window.page.keyboard.type("use another word")
        rows = window.page.locator(".quick-input-widget .monaco-list-row")
        rows.filter(has_text="use another word").wait_for()
        window.press("Enter")
        asked = poll(lambda: window.run("return globalThis.asked['midspan/edit']"), "nothing was asked")
        assert (asked["instruction"], asked.get("preset")) == ("use another word", None)
        assert "no instructions" not in str(poll(lambda: window.run(PREVIEW) or window.messages, "no answer"))
    run_midspan(workbench, "engine", "stop", "--checkpoint", str(checkpoint))


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
