"""A real VS Code workbench: its server with a Node extension host, our extension installed in it, and a browser."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
import pytest
from polling import poll

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Playwright

REPOSITORY = Path(__file__).resolve().parent.parent.parent
PROGRAMS = Path(sys.executable).parent
"""Where `midspan` lies: the environment that runs the tests."""

START_S = 90.0
"""Patience for a process that starts on a busy two-core machine: the workbench, an extension host, an engine."""

_PROBE = Path(__file__).with_name("probe")

USER_SETTINGS: dict[str, object] = {
    "window.commandCenter": False,
    "workbench.startupEditor": "none",
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "workbench.enableExperiments": False,
    "workbench.tips.enabled": False,
    "chat.disableAIFeatures": True,
    "editor.minimap.enabled": False,
    "editor.inlineSuggest.minShowDelay": 0,
    "editor.quickSuggestions": {"other": "off"},  # its list would take Tab
    "editor.suggestOnTriggerCharacters": False,
    "editor.hover.delay": 100,
    "extensions.autoUpdate": False,
    "extensions.autoCheckUpdates": False,
    "extensions.ignoreRecommendations": True,
    "files.autoSave": "off",
    "git.enabled": False,
    "security.workspace.trust.enabled": False,
    "telemetry.telemetryLevel": "off",
    "update.mode": "none",
}

_CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class Folders(msgspec.Struct, frozen=True):
    """Says where a workbench keeps what it writes; everything lies below `home`, whose path must be short."""

    home: Path

    @property
    def user(self) -> Path:
        return self.home / "data" / "User"

    @property
    def extensions(self) -> Path:
        return self.home / "ext"

    @property
    def probe(self) -> Path:
        return self.home / "probe.sock"

    def environment(self) -> dict[str, str]:
        """Returns an environment in which nothing of the user's is met: no engine, no settings, no cache."""
        return {
            **{key: value for key, value in os.environ.items() if not key.startswith(("VSCODE_", "MIDSPAN_"))},
            "HOME": str(self.home),
            "SHELL": "/bin/bash",
            "MIDSPAN_PROBE": str(self.probe),
            "MIDSPAN_RUNTIME_DIR": str(self.home / "run"),
            "XDG_RUNTIME_DIR": str(self.home / "xdg"),
            **{f"XDG_{name}_HOME": str(self.home / name.lower()) for name in ("CONFIG", "STATE", "DATA", "CACHE")},
            "EXTENSIONS_GALLERY": '{"serviceUrl":""}',
            "OMP_NUM_THREADS": "1",
        }


class Probe:
    """The connection of one extension host: it runs JavaScript there and returns its value."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(START_S)
        self._connection = connection
        self._lines = connection.makefile("rb")
        self._n_asked = 0
        self.folder: str = self._read()["folder"]

    def run(self, code: str, *values: object) -> Any:
        """Runs the body of an async function that sees `vscode` and `values`; raises RuntimeError with its error."""
        self._n_asked += 1
        message = {"id": self._n_asked, "code": code, "values": values}
        self._connection.sendall(msgspec.json.encode(message) + b"\n")
        while (answer := self._read()).get("id") != self._n_asked:
            pass  # an answer that came after its caller had given up
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["value"]

    def close(self) -> None:
        """Lets go of the extension host, which goes on."""
        self._lines.close()
        self._connection.close()

    def _read(self) -> dict[str, Any]:
        line = self._lines.readline()
        assert line, "the extension host has ended"
        answer: dict[str, Any] = msgspec.json.decode(line)
        return answer


class Workbench:
    """One server of the workbench and one browser; each window of it is a page with an extension host of its own."""

    def __init__(self, folders: Folders, address: str, listener: socket.socket, browser: Browser) -> None:
        self.folders = folders
        self._address = address
        self._listener = listener
        self._browser = browser

    @classmethod
    @contextmanager
    def running(
        cls, playwright: Playwright, home: Path, vsix: Path, settings: Mapping[str, object] | None = USER_SETTINGS
    ) -> Iterator[Workbench]:
        """Runs a workbench with an empty profile but for the user's settings, into which `vsix` is installed, while
        the block lasts. Without settings the profile is that of a new user: there is no probe either.
        """
        folders = Folders(home)
        _furnish(folders, vsix, settings)
        with _listening(folders.probe) as listener, _server(folders) as address:
            browser = playwright.chromium.launch(
                executable_path=_chromium(), args=_CHROMIUM_FLAGS, timeout=START_S * 1e3, env=folders.environment()
            )
            yield cls(folders, address, listener, browser)
            browser.close()

    def context(self) -> BrowserContext:
        """Returns a browser profile of its own; windows of one profile share the user's settings."""
        context = self._browser.new_context(viewport={"width": 1100, "height": 640}, device_scale_factor=1)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        return context

    def open(self, context: BrowserContext, folder: Path) -> tuple[Page, Probe]:
        """Opens a window on a folder, once its extension host runs."""
        page = self.page(context, folder)
        probe = Probe(self._listener.accept()[0])
        assert probe.folder == str(folder), "one window is opened after the other"
        page.bring_to_front()
        return page, probe

    def page(self, context: BrowserContext, folder: Path) -> Page:
        """Opens a window on a folder as its user sees it."""
        page = context.new_page()
        page.set_default_timeout(START_S * 1e3)
        page.goto(f"{self._address}/?folder={quote(str(folder))}")
        return page

    @property
    def log(self) -> str:
        """What the extension of the window opened last has logged."""
        logs = sorted((self.folders.home / "data" / "logs").rglob("Midspan.log"), key=lambda path: path.stat().st_mtime)
        return logs[-1].read_text(errors="replace") if logs else "empty"


def _furnish(folders: Folders, vsix: Path, settings: Mapping[str, object] | None) -> None:
    programs = folders.home / ".local" / "bin"
    for folder in (folders.extensions, folders.home / "xdg", programs):
        folder.mkdir(parents=True, exist_ok=True)
    (folders.home / "xdg").chmod(0o700)
    # VS Code takes PATH from a login shell, as it is set up here: with the README's link to the program.
    (folders.home / ".bash_profile").write_text(f'export PATH="{programs}:$PATH"\n')
    (programs / "midspan").symlink_to(PROGRAMS / "midspan")
    if settings is not None:
        folders.user.mkdir(parents=True, exist_ok=True)
        (folders.user / "settings.json").write_bytes(msgspec.json.encode(settings))
        shutil.copytree(_PROBE, folders.extensions / "midspan-tests.midspan-probe-0.0.1")
    done = subprocess.run(
        [_executable(), *_places(folders), "--install-extension", str(vsix), "--accept-server-license-terms"],
        env=folders.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "was successfully installed" in done.stdout, done.stdout + done.stderr


def _places(folders: Folders) -> list[str]:
    data = folders.home / "data"
    return ["--server-data-dir", str(data), "--user-data-dir", str(data), "--extensions-dir", str(folders.extensions)]


@contextmanager
def _server(folders: Folders) -> Iterator[str]:
    command = [_executable(), *_places(folders), "--accept-server-license-terms", "--without-connection-token"]
    command += ["--host", "127.0.0.1", "--port", "0", "--telemetry-level", "off"]
    command += ["--reconnection-grace-time", "5"]  # an extension host ends soon after its window
    log = folders.home / "workbench.log"
    with (
        log.open("wb") as output,
        subprocess.Popen(command, env=folders.environment(), stdout=output, stderr=output) as process,
    ):
        try:
            yield _address(process, log)
        finally:
            process.terminate()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Returns where the server says that it listens."""
    found = poll(
        lambda: re.search(r"listening on (\d+)", log.read_text(errors="replace")) or process.poll() is not None,
        "the workbench did not listen",
        deadline_s=START_S,
    )
    assert isinstance(found, re.Match), log.read_text(errors="replace")
    return f"http://127.0.0.1:{found[1]}"


@contextmanager
def _listening(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.settimeout(START_S)
        listener.listen()
        yield listener


def _executable() -> str:
    path = os.environ.get("MIDSPAN_WORKBENCH") or str(REPOSITORY / ".cache" / "vscode" / "bin" / "workbench")
    if shutil.which(path) is None:
        pytest.fail(f"there is no VS Code workbench at {path}; `make e2e-vscode` fetches one")
    return path


def _chromium() -> str:
    path = os.environ.get("MIDSPAN_CHROMIUM") or shutil.which("chromium")
    if path is None:
        pytest.fail("Chromium is missing; `make e2e-vscode` installs it, or name one in MIDSPAN_CHROMIUM")
    return path


def run_midspan(workbench: Workbench, *arguments: str) -> dict[str, Any]:
    """Runs a command of Midspan against the engine of a workbench and returns its JSON."""
    command = [PROGRAMS / "midspan", *arguments, "--json"]
    done = subprocess.run(command, env=workbench.folders.environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@contextmanager
def paused_engine(workbench: Workbench) -> Iterator[None]:
    """Lets the engine stand still while the block lasts."""
    pid = run_midspan(workbench, "status")["engine"]["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def files_of(vsix: Path) -> set[str]:
    """Returns what an extension's package holds."""
    with zipfile.ZipFile(vsix) as package:
        return set(package.namelist())
