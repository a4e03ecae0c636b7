"""Makes the README's pictures from a real VS Code: `python -m pictures FOLDER`, in this folder."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright
from polling import poll
from sample import HOLES, LINE, split_sample
from window import Window
from workbench import REPOSITORY, Workbench, run_midspan

SIZE = {"width": 860, "height": 420}
_DOUBTFUL = """
    def cheapest(self) -> Item:
        ___

    def report(self) -> str:
        ___
"""
IS_PREVIEW = "return vscode.window.activeTextEditor?.document.uri.scheme === 'midspan-preview'"


def main(target: Path) -> None:
    """Writes one picture of ghost text, one of a preview and one of the canvas."""
    target.mkdir(parents=True, exist_ok=True)
    vsix = sorted((REPOSITORY / "editors" / "vscode").glob("midspan-*.vsix"))[-1]
    with tempfile.TemporaryDirectory(prefix="ms-", ignore_cleanup_errors=True) as home:
        folder = Path(home) / "shop"
        folder.mkdir()
        with sync_playwright() as playwright, Workbench.running(playwright, Path(home), vsix) as workbench:
            run_midspan(workbench, "engine", "start")
            with Window.on(workbench, workbench.context(), folder) as window:
                window.page.set_viewport_size(SIZE)
                window.command("workbench.action.closeSidebar")
                ghost(window, target / "vscode-ghost.png")
                window.clear()
                preview(window, target / "vscode-edit.png")
                window.clear()
                canvas(window, target / "vscode-canvas.png")
            run_midspan(workbench, "engine", "stop")


def ghost(window: Window, picture: Path) -> None:
    """Types until a suggestion is on the screen."""
    head, tail = split_sample()
    file = window.folder / "inventory.py"
    file.write_text(f"{head}            \n{tail}")
    window.open(file, head.count("\n"))
    window.type_until_ghost(LINE.strip())
    window.page.screenshot(path=picture)


def preview(window: Window, picture: Path) -> None:
    """Asks for two holes and leaves their preview open."""
    show_holes(window)
    window.start("midspan.fillHoles")
    poll(lambda: window.run(IS_PREVIEW), "no preview")
    window.command("notifications.clearAll")
    window.page.screenshot(path=picture)


def canvas(window: Window, picture: Path) -> None:
    """Watches holes being filled and goes back to the pass in which most was in doubt."""
    show_holes(window, _DOUBTFUL)
    window.command("midspan.watchCanvas")
    panel = window.page.frame_locator("iframe.webview").frame_locator("iframe")
    panel.locator("#caption").filter(has_text="appears here").wait_for()
    window.run("await vscode.window.showTextDocument(vscode.window.visibleTextEditors[0].document)")
    window.start("midspan.fillHoles")
    panel.locator("#caption").filter(has_text="(last)").wait_for()
    doubts = [0] * (1 + int(panel.locator("#slider").get_attribute("max") or 0))
    panel.locator("#slider").press("Home")
    for n in range(len(doubts)):
        doubts[n] = panel.locator("#canvas :is(.sure, .open, .unsure)").count()
        panel.locator("#slider").press("ArrowRight")
    for _ in doubts[doubts.index(max(doubts)) + 1 :]:
        panel.locator("#slider").press("ArrowLeft")
    window.command("midspan.rejectAllChanges")
    window.command("notifications.clearAll")
    window.command("workbench.action.focusFirstEditorGroup")
    window.page.screenshot(path=picture)


def show_holes(window: Window, more: str = "") -> None:
    """Opens a file with two holes, and what else there may be."""
    file = window.folder / "stock.py"
    file.write_text(HOLES + more)
    window.open(file, HOLES[: HOLES.index("___")].count("\n") + more.count("\n"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
