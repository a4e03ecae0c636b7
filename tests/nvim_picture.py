"""Pictures of Midspan in Neovim, made from the screen of the real program: `python -m nvim_picture FOLDER`."""

from __future__ import annotations

import io
import re
import sys
import tempfile
from copy import copy
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

from nvim_editor import Editor, poll
from nvim_sample import LINE, SAMPLE, go_to_gap, own_engine, write_project

HOLE = (("item = self.items[name]", "item = ___"),)
MISTAKES = (
    ('ValueError("quantity must be positive")', 'ValueError("quantity")'),
    ("item = self.items[name]", "item = self.itms[nmae]"),
)
"""What stands in the sample, and what is put in place of its last copy; the model can know it from the others."""

SIZE = (92, 22)
"""Columns and rows: as wide as the README shows without making it smaller."""


def save_svg(screen: str, path: Path, title: str) -> None:
    """Writes a screen with its escape sequences as a picture that loads nothing from elsewhere."""
    width = max(Text.from_ansi(line).cell_len for line in screen.splitlines())
    console = Console(record=True, width=width, file=io.StringIO(), color_system="truecolor", force_terminal=True)
    console.print(Text.from_ansi(screen.rstrip("\n")), soft_wrap=True)
    theme = copy(SVG_EXPORT_THEME)
    ground = Text.from_ansi(screen).get_style_at_offset(console, 0).bgcolor
    if ground is not None and ground.triplet is not None:
        theme.background_color = ground.triplet  # tmux leaves the ends of lines out
    svg = console.export_svg(title=title, theme=theme, unique_id="midspan")
    path.write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL))


def ghost_picture(path: Path) -> None:
    """Types until a suggestion stands on the screen."""
    with tempfile.TemporaryDirectory(prefix="midspan-") as name:
        folder = Path(name)
        with Editor.on_screen(write_project(folder / "shop"), folder, size=SIZE) as (opened, terminal):
            opened.nvim.command("set noshowcmd noruler laststatus=0 shortmess+=F")
            go_to_gap(opened)
            ghost = opened.type_until_ghost(LINE.strip(), terminal.type)
            shown = ghost.text.split("\n")[0]
            save_svg(poll(lambda: find(terminal.capture(), shown), "no ghost text on the screen"), path, "Neovim")


def preview_picture(path: Path, changes: tuple[tuple[str, str], ...], command: str) -> None:
    """Has a changed sample edited by a command on the changed lines, and the proposal drawn."""
    text = SAMPLE.read_text()
    for old, new in changes:
        before, _, after = text.rpartition(old)
        text = before + new + after
    first, last = (text[: text.index(new)].count("\n") + 1 for _, new in (changes[0], changes[-1]))
    with tempfile.TemporaryDirectory(prefix="midspan-") as name:
        folder = Path(name)
        file = write_project(folder / "shop")
        file.write_text(text)
        with Editor.on_screen(file, folder, size=SIZE) as (opened, terminal):
            opened.nvim.command("set noshowcmd noruler laststatus=0 shortmess+=F")
            poll(lambda: not opened.left_alone, "the server was not configured")
            opened.nvim.command(f"{first}")
            opened.nvim.command(f"{first},{last}Midspan {command}")
            poll(lambda: opened.is_proposing, "nothing was proposed")
            screen = poll(lambda: find(terminal.capture(), "accept | reject"), "no message on the screen")
            save_svg(screen, path, "Neovim")


def find(screen: str, text: str) -> str | None:
    """Returns the screen when the text stands on it."""
    return screen if text in Text.from_ansi(screen).plain else None


def main(folder: Path) -> None:
    """Makes all pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    with own_engine():
        ghost_picture(folder / "nvim-ghost.svg")
        preview_picture(folder / "nvim-holes.svg", HOLE, "holes")
        preview_picture(folder / "nvim-edit.svg", MISTAKES, "edit rewrite")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
