"""A real Neovim with the adapter, whose language server answers exactly what a test says."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nvim_editor import REPOSITORY, Editor, poll

INLINE = "textDocument/inlineCompletion"
_SERVER = REPOSITORY / "tests" / "neovim" / "scripted_server.lua"
_KEEP_MESSAGES = """
messages = {}
vim.notify = function(message) table.insert(messages, message) end
"""


class Scripted:
    """The editor, and the server behind it."""

    def __init__(self, editor: Editor) -> None:
        self.editor = editor

    @classmethod
    @contextmanager
    def opened(cls, text: str, version: str) -> Iterator[Scripted]:
        """Runs Neovim on a file with this text while the block lasts."""
        config = f"vim.lsp.config('midspan', {{ cmd = dofile([[{_SERVER}]]) }}); {_KEEP_MESSAGES};"
        with tempfile.TemporaryDirectory(prefix="midspan-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            file = folder / "a.py"
            file.write_text(text)
            with Editor.headless(file, folder / "nvim.sock", version, config) as editor:
                yield cls(editor)

    def answer(self, method: str, lua: str) -> None:
        """Has a method answered with the value of a Lua expression."""
        self.editor.lua(f"script.answers[...] = {lua}", method)

    def hold(self, method: str) -> None:
        """Leaves requests of a method unanswered until they are released."""
        self.editor.lua("script.held[...] = true", method)

    def release(self, method: str, index: int = 1) -> None:
        """Answers a held request, counted from the oldest."""
        self.editor.lua("script.release(...)", method, index)

    def asked(self, method: str) -> list[dict[str, Any]]:
        """Returns the requests of a method so far: id, method, params."""
        found: list[dict[str, Any]] = self.editor.lua(
            "local method = ... return vim.tbl_filter(function(each) return each.method == method end, script.asked)",
            method,
        )
        return found

    @property
    def cancelled(self) -> list[int]:
        """The ids of the requests that were withdrawn."""
        found: list[int] = self.editor.lua("return script.cancelled")
        return found

    @property
    def messages(self) -> list[str]:
        """What the user was told."""
        found: list[str] = self.editor.lua("return messages")
        return found

    def until_told(self, text: str) -> None:
        """Waits for a message to the user that holds a text."""
        poll(lambda: any(text in each for each in self.messages), f"the user was not told {text!r}")

    def until_asked(self, method: str, count: int = 1) -> dict[str, Any]:
        """Waits for so many requests of a method and returns the last one."""
        poll(lambda: len(self.asked(method)) >= count, f"{method} was not asked {count} times")
        return self.asked(method)[count - 1]

    def insert_after(self, column: int) -> None:
        """Goes to insert mode behind so many bytes of the first line."""
        self.editor.nvim.command("normal! gg0")
        self.editor.press("i" + "<Right>" * column)
        poll(lambda: self.editor.mode == "i" and self.editor.nvim.current.window.cursor[1] == column, "not in place")


def item(text: str, start: int, end: int | None = None, line: int = 0) -> str:
    """Returns an inline completion in Lua, with the range it replaces."""
    stop = start if end is None else end
    return (
        f"{{ insertText = {lua_string(text)}, range = {{ start = {{ line = {line}, character = {start} }}, "
        f'["end"] = {{ line = {line}, character = {stop} }} }} }}'
    )


def lua_string(text: str) -> str:
    """Returns a text as Lua writes it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
