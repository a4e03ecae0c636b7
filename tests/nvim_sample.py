"""A real file with a line taken out, an engine to fill it, and Neovim in the gap."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from nvim_editor import PROGRAMS, REPOSITORY, Editor, poll

SAMPLE = REPOSITORY / "server" / "midspan_server" / "demo" / "inventory.py"
LINE = '            raise ValueError("quantity must be positive")'
"""Stands twice in the sample; its second copy is taken out and typed again, so that the model has seen the answer."""


@contextmanager
def own_engine() -> Iterator[None]:
    """Runs an engine for the block alone, ready when it begins."""
    with tempfile.TemporaryDirectory(prefix="midspan-") as folder:
        own = {"MIDSPAN_RUNTIME_DIR": f"{folder}/run", "XDG_STATE_HOME": f"{folder}/state"}
        with patch.dict(os.environ, own):
            run_midspan("engine", "start", "--json")
            try:
                yield
            finally:
                run_midspan("engine", "stop", "--json")


def run_midspan(*arguments: str) -> dict[str, object]:
    """Returns what a command prints as JSON."""
    done = subprocess.run([PROGRAMS / "midspan", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert isinstance(answer, dict)
    return answer


def split_sample() -> tuple[str, str]:
    """Returns what stands before and after the line that is taken out."""
    text = SAMPLE.read_text()
    assert text.count(f"{LINE}\n") == 2, "the sample repeats its line"
    head, _, tail = text.rpartition(f"{LINE}\n")
    return head, tail


def write_project(folder: Path) -> Path:
    """Writes the sample, with its gap, into a project of its own; returns the file."""
    folder.mkdir()
    (folder / "pyproject.toml").write_text('[project]\nname = "shop"\n')
    head, tail = split_sample()
    file = folder / "inventory.py"
    file.write_text(f"{head}            \n{tail}")
    return file


def go_to_gap(opened: Editor) -> None:
    """Goes to insert mode at the end of the emptied line."""
    head, _ = split_sample()
    opened.nvim.command(f"{head.count(chr(10)) + 1}")
    opened.press("A")
    poll(lambda: opened.mode == "i", "Neovim did not go into insert mode")
