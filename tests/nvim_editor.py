"""A real Neovim with the adapter of editors/nvim, driven over its own RPC, embedded or inside a terminal."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pynvim
import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
PROGRAMS = Path(sys.executable).parent
"""Where `midspan` lies: the environment that runs the tests."""

DEADLINE_S = 20.0
"""Patience for one event; a busy two-core machine takes seconds for what is usually instant."""

SETTINGS = "min_confidence = 0, deadline_ms = 20000"
"""These tests are about the editor: what the engine finds is shown, however unsure it is and busy the machine."""

# Counts what passes between editor and server: `asked` by Neovim's completion, `sent` over the wire, `open` unanswered.
WATCH_REQUESTS = """
local method = "textDocument/inlineCompletion"
watched = { asked = 0, sent = 0, open = {} }
vim.api.nvim_create_autocmd("LspRequest", { callback = function(event)
  local request = event.data.request
  if request.method ~= method then return end
  if request.type == "pending" then
    watched.sent = watched.sent + 1
    watched.open[event.data.request_id] = true
  elseif request.type == "complete" then
    watched.open[event.data.request_id] = nil
  end
end })
vim.api.nvim_create_autocmd("LspDetach", { callback = function() watched.open = {} end })
vim.api.nvim_create_autocmd("LspAttach", { callback = function(event)
  -- Later than the adapter's own handler, so as to hear what Neovim asks before the adapter does.
  vim.schedule(function()
    local client = vim.lsp.get_client_by_id(event.data.client_id)
    local request = client.request
    client.request = function(self, name, ...)
      if name == method then watched.asked = watched.asked + 1 end
      return request(self, name, ...)
    end
  end)
end })
"""

_KEYS = """
local keys = { l = "accept", w = "accept-word", j = "accept-line", d = "dismiss", n = "next", p = "prev" }
for key, action in pairs(keys) do
  vim.keymap.set("i", ("<M-%s>"):format(key), ("<Plug>(midspan-%s)"):format(action))
end
"""

# Drawn by Neovim 0.12 or, in 0.11, by the adapter.
GHOST = """
local marks = {}
for _, name in ipairs({ "nvim.lsp.inline_completion", "midspan.ghost" }) do
  local namespace = vim.api.nvim_create_namespace(name)
  vim.list_extend(marks, vim.api.nvim_buf_get_extmarks(0, namespace, 0, -1, { details = true }))
end
if #marks == 0 then return vim.NIL end
local details = marks[1][4]
local lines = {}
local function add(chunks)
  lines[#lines + 1] = table.concat(vim.tbl_map(function(chunk) return chunk[1] end, chunks))
end
add(details.virt_text)
for _, chunks in ipairs(details.virt_lines or {}) do add(chunks) end
return { marks[1][2], marks[1][3], table.concat(lines, "\\n"), details.virt_text[1][2] }
"""


# What draws is attached, with a group of autocommands, shortly after the client.
_ATTACHED = """
local client = vim.lsp.get_clients({ bufnr = 0, name = "midspan" })[1]
local bufnr = vim.api.nvim_get_current_buf()
local groups = vim.fn.exists("#nvim.lsp.inline_completion:" .. bufnr) + vim.fn.exists("#midspan.ghost." .. bufnr)
local is_ready = client and client.initialized and (groups > 0 or client.server_capabilities.completionProvider)
return is_ready and client.id or nil
"""

VERSIONS = {"0.12": ("MIDSPAN_NVIM", "neovim"), "0.11": ("MIDSPAN_NVIM_OLDER", "neovim-0.11")}
"""The tested Neovims: the variable that names the executable, and the folder of `.cache` that `make e2e` puts it in."""


def nvim_executable(version: str) -> str:
    """Returns a Neovim to test with; fails the test, with what to do, when there is none."""
    variable, folder = VERSIONS[version]
    path = os.environ.get(variable) or str(REPOSITORY / ".cache" / folder / "bin" / "nvim")
    if shutil.which(path) is None:
        pytest.fail(f"there is no Neovim at {path}; `make e2e` fetches one, or set {variable} to a Neovim {version}")
    return path


def nvim_arguments(file: Path, *options: str, version: str = "0.12", config: str = "") -> list[str]:
    """Returns a command line for a Neovim without the user's configuration that has what midspan.txt says to set up.

    `config` is Lua that runs before the server is started.
    """
    return [
        nvim_executable(version),
        *options,
        "--clean",
        "-n",
        "--cmd",
        f"lua {WATCH_REQUESTS}",
        "--cmd",
        f"lua vim.opt.runtimepath:prepend([[{REPOSITORY / 'editors' / 'nvim'}]])",
        "--cmd",
        f"lua {_KEYS}",
        "--cmd",
        "lua "
        f"vim.lsp.config('midspan', {{ settings = {{ midspan = {{ {SETTINGS} }} }} }}); {config}"
        "vim.lsp.enable('midspan')",
        str(file),
    ]


def own_environment(folder: Path) -> dict[str, str]:
    """Returns the variables of a new user, whose files lie in a folder, with the tested `midspan` first on PATH."""
    own = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("STATE", "DATA", "CONFIG", "CACHE")}
    return {**os.environ, **own, "HOME": str(folder), "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"}


class Ghost:
    """The ghost text as Neovim has drawn it: where it begins (0-based row, byte column), and all its lines."""

    def __init__(self, row: int, col: int, text: str, highlight: str) -> None:
        self.row = row
        self.col = col
        self.text = text
        self.highlight = highlight


class Editor:
    """One Neovim process with a file open and the language server attached."""

    def __init__(self, nvim: pynvim.Nvim) -> None:
        self.nvim = nvim

    @classmethod
    @contextmanager
    def headless(cls, file: Path, listening: Path, version: str = "0.12", config: str = "") -> Iterator[Editor]:
        """Runs Neovim without a screen on `file` while the block lasts."""
        command = nvim_arguments(file, "--headless", "--listen", str(listening), version=version, config=config)
        with cls.run_by(command, listening) as editor:
            yield editor

    @classmethod
    @contextmanager
    def run_by(cls, command: list[str], listening: Path, **variables: str) -> Iterator[Editor]:
        """Runs a command line of a Neovim that listens, with files of its own, while the block lasts."""
        environment = {**own_environment(listening.parent), **variables}
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment) as process:
            try:
                with cls.listening(listening) as editor:
                    yield editor
            finally:
                process.kill()  # nothing to do after `qall!`; an end all the same when a test has failed

    @classmethod
    @contextmanager
    def on_screen(
        cls, file: Path, folder: Path, version: str = "0.12", *, size: tuple[int, int] = (160, 32)
    ) -> Iterator[tuple[Editor, Terminal]]:
        """Runs Neovim in a terminal of so many columns and rows; its sockets lie in `folder`."""
        listening = folder / "nvim.sock"
        command = nvim_arguments(file, "--listen", str(listening), "--cmd", "set termguicolors", version=version)
        environment = [f"{name}={value}" for name, value in own_environment(folder).items()]
        terminal = Terminal(folder / "tmux.sock", ["env", *environment, *command], size)
        with closing(terminal), cls.listening(listening) as editor:
            yield editor, terminal

    @classmethod
    @contextmanager
    def listening(cls, path: Path) -> Iterator[Editor]:
        """Joins a Neovim that listens on `path`, once the language server is attached; ends it after the block."""
        poll(lambda: _accepts(path), f"Neovim did not listen on {path}")
        editor = cls(pynvim.attach("socket", path=str(path)))
        try:
            poll(lambda: editor.client_id, "the language server did not attach")
            yield editor
        finally:
            with suppress(OSError, EOFError):  # it is gone before it can answer
                editor.nvim.command("qall!")
            editor.nvim.close()

    def lua(self, code: str, *arguments: object) -> Any:
        """Runs Lua in the editor and returns its value."""
        return self.nvim.exec_lua(code, *arguments)

    @property
    def client_id(self) -> int | None:
        """Neovim's number for the language server, once it is attached and asked for ghost text."""
        found: int | None = self.lua(_ATTACHED)
        return found

    @property
    def is_proposing(self) -> bool:
        """Whether hunks are drawn that wait for a decision."""
        marks = "vim.api.nvim_buf_get_extmarks(0, vim.api.nvim_create_namespace('midspan.preview'), 0, -1, {})"
        return bool(self.lua(f"return #{marks} > 0"))

    @property
    def left_alone(self) -> dict[str, str]:
        """The open files in which the server does nothing, and why; until it has its settings, that is all of them."""
        found: dict[str, str] = self.lua("""
            local client = vim.lsp.get_clients({ name = "midspan" })[1]
            return client:request_sync("midspan/status", vim.empty_dict()).result.left_alone
        """)
        return found

    @property
    def text(self) -> str:
        """The buffer as one string, as it would be written."""
        return "".join(f"{line}\n" for line in self.nvim.current.buffer[:])

    @property
    def line(self) -> str:
        """The line that the cursor is on."""
        return str(self.nvim.current.line)

    @property
    def mode(self) -> str:
        """Neovim's mode: "i" while text is typed."""
        return str(self.nvim.api.get_mode()["mode"])

    @property
    def ghost(self) -> Ghost | None:
        """The ghost text on the screen, if any."""
        found = self.lua(GHOST)
        return Ghost(*found) if found else None

    def press(self, keys: str) -> None:
        """Presses keys, written as in a map: `<Esc>`, `<lt>`."""
        self.nvim.input(keys)

    def type(self, text: str) -> None:
        """Types text and waits until it stands before the cursor."""
        before = len(self.line)
        self.press(text.replace("<", "<lt>"))
        poll(lambda: len(self.line) >= before + len(text), f"{text!r} was not typed")

    def find_ghost(
        self, text: str, write: Callable[[str], None] | None = None, deadline_s: float = DEADLINE_S
    ) -> Ghost | None:
        """Types `text` letter by letter until a suggestion appears; None when each letter is answered with silence."""
        for letter in text:
            if ghost := self._ghost_after(letter, write or self.type, deadline_s):
                return ghost
        return None

    def type_until_ghost(self, text: str, write: Callable[[str], None] | None = None) -> Ghost:
        """Types `text` letter by letter until a suggestion appears; fails, with the server's reason, when none does."""
        ghost = self.find_ghost(text, write)
        if ghost is None:
            pytest.fail(f"nothing was suggested up to {self.line!r}: {self.messages_of('Midspan status')}")
        return ghost

    def _ghost_after(self, letter: str, write: Callable[[str], None], deadline_s: float) -> Ghost | None:
        sent = self.lua("return watched.sent")
        write(letter)
        is_answered = "return watched.sent > ... and not next(watched.open)"
        poll(lambda: self.ghost or self.lua(is_answered, sent), f"the server did not answer {letter!r}", deadline_s)
        return self.ghost

    def messages_of(self, command: str) -> str:
        """Returns what a command prints."""
        return str(self.nvim.api.exec2(command, {"output": True})["output"])


def poll(condition: Callable[[], Any], failure: str, deadline_s: float = DEADLINE_S) -> Any:
    """Returns the first true value of `condition`; fails the test with `failure` when there is none in time."""
    end = time.monotonic() + deadline_s
    while not (value := condition()):
        if time.monotonic() > end:
            pytest.fail(f"{failure} within {deadline_s:.0f} s")
        time.sleep(0.02)
    return value


def _accepts(path: Path) -> bool:
    """Tells whether somebody listens; the file of a socket is there a moment earlier."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


class Terminal:
    """A tmux session of its own server that runs one program on a screen of known size."""

    def __init__(self, control: Path, arguments: list[str], size: tuple[int, int]) -> None:
        if shutil.which("tmux") is None:
            pytest.fail("tmux is missing; `make e2e` installs it, or install it yourself (Debian: apt install tmux)")
        self._tmux = ["tmux", "-f", os.devnull, "-S", str(control)]
        columns, rows = map(str, size)
        subprocess.run([*self._tmux, "new-session", "-d", "-x", columns, "-y", rows, "--", *arguments], check=True)

    def press(self, *keys: str) -> None:
        """Presses keys by tmux's names."""
        subprocess.run([*self._tmux, "send-keys", *keys], check=True)

    def type(self, text: str) -> None:
        """Types text as it is."""
        subprocess.run([*self._tmux, "send-keys", "-l", text], check=True)

    def capture(self) -> str:
        """Returns the screen with its colours as escape sequences."""
        shown = subprocess.run([*self._tmux, "capture-pane", "-p", "-e"], check=True, capture_output=True, text=True)
        return shown.stdout

    def close(self) -> None:
        """Ends the session and all it runs."""
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True)
