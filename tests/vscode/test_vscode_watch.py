"""The watched canvas in a real VS Code: what its panel shows, and that it costs nothing while it is closed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from polling import poll
from sample import DOUBTFUL, HOLES, LINE, split_sample
from tap import Tap
from window import Window
from workbench import Workbench

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, FrameLocator

pytestmark = pytest.mark.e2e

FIRST = next(n for n, line in enumerate(HOLES.split("\n")) if "___" in line)
_CLOSE_PANEL = """
const tabs = vscode.window.tabGroups.all.flatMap(({ tabs }) => tabs);
await vscode.window.tabGroups.close(tabs.filter(({ input }) => input instanceof vscode.TabInputWebview));
"""
_COLOURS = "all => all.map((each) => [each.className, getComputedStyle(each).color])"


def open_panel(window: Window) -> FrameLocator:
    """Opens the panel beside the file, which keeps the keys, and returns its page."""
    window.command("midspan.watchCanvas")
    canvas = window.page.frame_locator("iframe.webview").frame_locator("iframe")
    canvas.locator("#caption").filter(has_text="appears here").wait_for()
    window.run("await vscode.window.showTextDocument(vscode.window.visibleTextEditors[0].document)")
    return canvas


def preview_holes(window: Window) -> None:
    """Fills the holes of the document and waits for the diff."""
    window.start("midspan.fillHoles")
    scheme = "return vscode.window.activeTextEditor?.document.uri.scheme"
    poll(lambda: window.run(scheme) == "midspan-preview", lambda: f"no preview: {window.messages}")


def test_the_canvas_is_watched_in_a_panel_while_it_settles(bare_window: Window) -> None:
    file = bare_window.folder / "watched.py"
    file.write_text(HOLES + DOUBTFUL)
    bare_window.open(file, FIRST)
    canvas = open_panel(bare_window)
    bare_window.start("midspan.fillHoles")
    caption, slider = canvas.locator("#caption"), canvas.locator("#slider")
    caption.filter(has_text="(last)").wait_for()
    assert re.search(r"watched.py, pass \d+ \(last\): \d+ slots? filled", caption.inner_text())
    assert slider.input_value() == slider.get_attribute("max"), "the last pass is shown"
    bare_window.screenshot("canvas")
    slider.press("Home")
    passes, colours = [], set()
    for _ in range(int(slider.get_attribute("max") or 0) + 1):
        passes.append(canvas.locator("#canvas").inner_text())
        colours |= set(map(tuple, canvas.locator("#canvas span").evaluate_all(_COLOURS)))
        slider.press("ArrowRight")
    assert len(set(passes)) > 2, "every pass is kept"
    assert any("self.items" in each for each in passes)
    kinds = [kind for kind, _ in colours]
    assert len(kinds) == len(set(kinds)), f"a kind has one colour: {colours}"
    assert {"pin", "accepted"} < set(kinds)
    assert {"sure", "open", "unsure"} & set(kinds), "tokens in doubt were seen"
    legend = dict(canvas.locator("#legend span").evaluate_all(_COLOURS))
    assert dict(colours).items() <= {kind.removeprefix("draft "): each for kind, each in legend.items()}.items()
    ((_, plain),) = canvas.locator("body").evaluate_all(_COLOURS)
    assert legend["pin"] != plain, "pins are dimmed"
    assert len({plain, *(legend[f"draft {kind}"] for kind in ("sure", "open", "unsure"))}) == 4


def test_the_closed_panel_costs_nothing_over_a_whole_session(
    workbench: Workbench, context: BrowserContext, tmp_path: Path
) -> None:
    """Edits ask the engine for drafts even so: their progress is told by them. A key never does."""
    head, tail = split_sample()
    (tmp_path / "a.py").write_text(f"{head}            \n{tail}")
    (tmp_path / "b.py").write_text(f"{head}            \n{tail}")
    (tmp_path / "holes.py").write_text(HOLES)
    with (
        Tap.on(workbench) as tap,
        Window.on(workbench, context, tmp_path, path=str(tap.program)) as window,
    ):
        window.open(tmp_path / "a.py", head.count("\n"))
        window.type_until_ghost(LINE.strip())
        window.press("Tab")
        window.open(tmp_path / "holes.py", FIRST)
        preview_holes(window)
        window.command("midspan.acceptAllChanges")
        assert any(not fill.held for fill in tap.fills), "keys were asked about"
        assert any(fill.held for fill in tap.fills), "holes were asked about"
        assert not [fill for fill in tap.fills if fill.watch and not fill.held]
        assert tap.n_drafts == 0

        open_panel(window)
        window.command("editor.action.inlineSuggest.trigger")
        poll(lambda: tap.n_drafts > 0, "the open panel was told nothing")
        assert tap.fills[-1].watch

        window.run(_CLOSE_PANEL)
        window.ask("midspan/status", {})  # answered after the panel's request
        n_fills, n_drafts = len(tap.fills), tap.n_drafts
        window.open(tmp_path / "b.py", head.count("\n"))
        window.type_until_ghost(LINE.strip())
        later = tap.fills[n_fills:]
        assert later
        assert not [fill for fill in later if fill.watch]
        assert tap.n_drafts == n_drafts
