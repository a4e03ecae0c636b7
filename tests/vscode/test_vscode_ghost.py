"""Ghost text in a real VS Code, with the real language server and the real engine."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from polling import poll
from sample import LINE, split_sample
from tap import Tap
from window import Window
from workbench import Workbench, paused_engine

from midspan_engine.protocol import Cancel

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext

pytestmark = pytest.mark.e2e


def accept(window: Window, *keys: str) -> None:
    """Presses keys and waits until they have changed the document."""
    version = window.version
    window.press(*keys)
    poll(lambda: window.version > version, f"{keys} changed nothing")


def test_tab_inserts_exactly_the_ghost_text_between_prefix_and_suffix(window: Window) -> None:
    head, tail = split_sample()
    ghost = window.type_until_ghost(LINE.strip())
    typed = window.line
    window.screenshot("ghost")
    accept(window, "Tab")
    assert window.text == f"{head}{typed}{ghost}\n{tail}"


def test_one_undo_brings_back_exactly_what_was_typed(window: Window) -> None:
    window.type_until_ghost(LINE.strip())
    before = window.text
    accept(window, "Tab")
    accept(window, "Control+z")
    assert window.text == before


def test_accepting_a_word_and_then_the_line_takes_the_suggestion_in_two_parts(window: Window) -> None:
    ghost = window.type_until_ghost(LINE.strip())
    typed = window.line
    window.command("midspan.acceptWord")
    poll(lambda: window.line != typed, "no word was accepted")
    word = window.line.removeprefix(typed)
    assert ghost.startswith(word)
    assert len(word) < len(ghost)
    assert window.ghost_on_demand() == ghost.removeprefix(word)
    window.command("midspan.acceptLine")
    poll(lambda: window.line != typed + word, "the line was not accepted")
    assert window.line == f"{typed}{ghost}"


def test_typing_what_is_suggested_keeps_the_rest_on_the_screen(window: Window) -> None:
    ghost = window.type_until_ghost(LINE.strip())
    whole = window.line + ghost
    for letter in ghost[:3]:
        window.type(letter)
        poll(lambda: window.line + window.ghost == whole, lambda: f"after {window.line!r}: {window.ghost!r}")


def test_a_burst_of_keys_leaves_no_stale_suggestion(window: Window) -> None:
    head, tail = split_sample()
    window.type("raise ValueErr")  # in one go: a request of each letter is overtaken by that of the next
    ghost = window.ghost_on_demand()
    assert window.line == "            raise ValueErr"
    accept(window, "Tab")
    assert window.text == f"{head}            raise ValueErr{ghost}\n{tail}"
    assert ghost.startswith("or(")


def test_a_key_withdraws_the_request_that_is_under_way(
    workbench: Workbench, context: BrowserContext, tmp_path: Path
) -> None:
    head, tail = split_sample()
    (tmp_path / "a.py").write_text(f"{head}            \n{tail}")
    with (
        Tap.on(workbench) as tap,
        Window.on(workbench, context, tmp_path, path=str(tap.program)) as window,
    ):
        window.open(tmp_path / "a.py", head.count("\n"))
        window.type("raise ValueEr")
        with paused_engine(workbench):
            before = len(tap.fills)
            # In an unchanged text a suggestion would be recalled, which needs no engine.
            window.insert(tmp_path / "a.py", 0, "# another text\n")
            window.start("editor.action.inlineSuggest.trigger")  # by hand: VS Code itself gives up no such request

            def under_way() -> list[int]:
                return [fill.id for fill in tap.fills[before:] if Cancel(fill.id) not in tap.requests]

            asked = set(poll(under_way, "the engine was not asked"))
            window.type("r")
            poll(lambda: not asked & set(under_way()), "the request went on")
        assert window.ghost_on_demand().startswith("or(")


def test_escape_hides_the_suggestion(window: Window) -> None:
    window.type_until_ghost(LINE.strip())
    before = window.text
    window.press("Escape")
    poll(lambda: not window.ghost, "the ghost text stayed")
    assert window.text == before


def test_brackets_that_vs_code_has_closed_are_not_closed_again(window: Window) -> None:
    window.page.keyboard.type('raise ValueError("')
    poll(lambda: window.line.endswith('("")'), lambda: f"VS Code closed nothing: {window.line!r}")
    ghost = window.ghost_on_demand()
    accept(window, "Tab")
    assert window.line.count(")") == 1, f"{ghost!r} was inserted"
    ast.parse(window.text)


def test_a_file_with_crlf_keeps_its_line_ends(bare_window: Window, project: Path) -> None:
    head, tail = split_sample()
    project.write_bytes(project.read_bytes().replace(b"\n", b"\r\n"))
    bare_window.open(project, head.count("\n"))
    ghost = bare_window.type_until_ghost(LINE.strip())
    typed = bare_window.line
    accept(bare_window, "Tab")
    assert bare_window.text == f"{head}{typed}{ghost}\n{tail}".replace("\n", "\r\n")


def test_an_emoji_before_the_cursor_shifts_nothing(bare_window: Window, project: Path) -> None:
    head, tail = split_sample()
    line = '            _ = "😀"; '
    project.write_text(f"{head}{line}\n{tail}")
    bare_window.open(project, head.count("\n"))
    bare_window.type("raise ValueErr")
    ghost = bare_window.ghost_on_demand()
    accept(bare_window, "Tab")
    assert bare_window.text == f"{head}{line}raise ValueErr{ghost}\n{tail}"


def test_a_cell_of_a_notebook_is_completed_from_the_cells_before_it(bare_window: Window) -> None:
    head, _ = split_sample()
    first = f"{head}            pass\n"
    # An untitled notebook of the Jupyter type, as "New Notebook" makes it; no kernel is needed to type.
    bare_window.run(
        """
        const [kind, python] = [vscode.NotebookCellKind.Code, "python"];
        const cells = values.map((text) => new vscode.NotebookCellData(kind, text, python));
        const data = new vscode.NotebookData(cells);
        const notebook = await vscode.workspace.openNotebookDocument("jupyter-notebook", data);
        await vscode.window.showNotebookDocument(notebook, { selections: [new vscode.NotebookRange(1, 2)] });
        await vscode.commands.executeCommand("notebook.cell.edit");
        """,
        first,
        "if stock <= 0:\n    ",
    )
    bare_window.wait_for_server()
    bare_window.command("cursorBottom")
    bare_window.type("raise ValueErr")
    assert bare_window.ghost_on_demand().startswith("or(")
    bare_window.screenshot("notebook")
