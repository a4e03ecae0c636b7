"""Finds the resident engine of a checkpoint, and starts it when there is none.

Clients of the same checkpoint and protocol version meet at the same socket, whose name is a hash of both. These
environment variables change where things are:

====================== ================================================= ===========================================
variable               meaning                                           default
====================== ================================================= ===========================================
MIDSPAN_CHECKPOINT     folder of the model to serve                      the checkpoint inside `midspan_engine`
MIDSPAN_WEIGHTS        how an engine holds experts, see `--weights`      auto
MIDSPAN_RUNTIME_DIR    folder of socket and lock, closed to other users  the user's runtime folder
XDG_STATE_HOME (Linux) parent of the folder that holds the engine's log  ~/.local/state
====================== ================================================= ===========================================
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib.resources
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import msgspec
import platformdirs

from midspan_engine.commands import WEIGHTS_VARIABLE
from midspan_engine.errors import EngineUnavailable, InputError
from midspan_engine.framing import peer_pid
from midspan_engine.protocol import PROTOCOL_VERSION

MAX_SOCKET_PATH_BYTES = 103
"""sizeof(sun_path) - 1 on macOS; Linux allows 107 (man 7 unix)."""

MAX_LOG_BYTES = 2**20
"""A longer log is begun anew when the next engine starts."""

IDLE_MINUTES = 10.0
"""After so long without a fill an engine leaves and gives its memory back. Chosen: a coffee, not a lunch."""

_POLL_S = 0.05

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """Says which engine a client talks to and how it is started."""

    checkpoint: Path
    socket: Path
    log: Path
    idle_minutes: float = IDLE_MINUTES
    weights: str | None = None
    """How the engine holds a large model's experts; None for what the environment says."""
    start_timeout_s: float = 30.0
    """A host listens before it imports torch, so this covers a slow disk and a busy machine, not the model."""

    @classmethod
    def resolve(cls, checkpoint: Path | None = None, idle_minutes: float = IDLE_MINUTES) -> Launch:
        """Returns the launch of `checkpoint`, of MIDSPAN_CHECKPOINT, or of the embedded checkpoint, in this order.

        The first client decides after how many idle minutes the engine leaves.

        Raises InputError when no folder for the socket can be used, and for a checkpoint that cannot be opened by its
        name.
        """
        chosen = checkpoint or Path(os.environ.get("MIDSPAN_CHECKPOINT") or embedded_checkpoint())
        chosen = chosen.expanduser().resolve()
        try:
            key = hashlib.sha256(f"{PROTOCOL_VERSION}:{chosen}".encode()).hexdigest()[:16]
        except UnicodeEncodeError:
            name = str(chosen).encode(errors="replace").decode()
            raise InputError(
                f"the checkpoint {name} has a name that is not UTF-8, as safetensors needs; rename it"
            ) from None
        return cls(
            checkpoint=chosen,
            socket=_runtime_folder(f"{key}.sock") / f"{key}.sock",
            log=Path(platformdirs.user_log_dir("midspan")) / f"engine-{key}.log",
            idle_minutes=idle_minutes,
        )

    async def connect(self) -> Streams | None:
        """Connects to the engine; None when none listens. Raises EngineUnavailable when it must not be used.

        While the host's queue of new clients is full, which asyncio takes for connected, this waits for a place in it.
        """
        deadline = time.monotonic() + self.start_timeout_s
        try:
            if not _is_private(self.socket.parent):
                raise EngineUnavailable(f"{self.socket.parent} is open to others; run `chmod 700` on it or remove it")
            while time.monotonic() < deadline:
                streams = await asyncio.open_unix_connection(self.socket)
                if streams[1].get_extra_info("peername") is not None:
                    return streams
                streams[1].transport.abort()
                await asyncio.sleep(_POLL_S)
        except (ConnectionError, FileNotFoundError):
            return None
        except OSError as error:
            raise EngineUnavailable(f"the engine's socket {self.socket} cannot be opened: {error.strerror}") from error
        raise EngineUnavailable(
            f"the engine takes no more clients; end its process (`midspan_engine host`), its log is {self.log}"
        )

    async def start(self) -> Streams:
        """Connects to the engine, starting it first when none listens.

        Of several hosts started at once one survives and all callers get it. Raises EngineUnavailable with the reason
        when the host dies or does not listen in time.
        """
        deadline = time.monotonic() + self.start_timeout_s
        host: _HostProcess | None = None
        while (streams := await self.connect()) is None:
            if time.monotonic() > deadline:
                raise EngineUnavailable(
                    f"the engine did not listen within {self.start_timeout_s:.0f} s; its log is {self.log}"
                )
            if host is None or host.exit_status == 0:
                # Status 0 is a host that left the race to another, which may have been on its way out: try again.
                host = _HostProcess(self)
            elif host.exit_status is not None:
                raise EngineUnavailable(f"the engine cannot start: {host.last_words()}; its log is {self.log}")
            await asyncio.sleep(_POLL_S)
        return streams

    async def kill(self) -> None:
        """Kills the engine that listens and waits for its end. Raises EngineUnavailable when that is not possible."""
        streams = await self.connect()
        if streams is None:
            return
        reader, writer = streams
        pid = peer_pid(writer.get_extra_info("socket"))
        if not pid:
            raise EngineUnavailable(
                f"the engine does not end; end its process (`midspan_engine host`), its log is {self.log}"
            )
        try:
            os.kill(pid, signal.SIGKILL)
            await reader.read()
        except (ProcessLookupError, ConnectionError):
            pass  # it has ended
        finally:
            writer.transport.abort()


class _HostProcess:
    """A host of our own, detached so that it outlives this process and its terminal."""

    def __init__(self, launch: Launch) -> None:
        self._log = launch.log
        try:
            self._log_start, process = _spawn(launch)
        except OSError as error:
            raise EngineUnavailable(f"the engine cannot be started: {error}; check {self._log.parent}") from error
        self._process = process
        # Reaps the host whenever it ends: this process may live for days after it.
        threading.Thread(target=process.wait, name="midspan-reaper", daemon=True).start()

    @property
    def exit_status(self) -> int | None:
        return self._process.returncode

    def last_words(self) -> str:
        """Why this host ended: the signal that killed it, or the last line that it wrote to its log."""
        status = self.exit_status
        if status is not None and status < 0:
            return f"it was killed by {signal.Signals(-status).name}, as happens when memory is short"
        with self._log.open("rb") as log:
            log.seek(self._log_start)
            lines = log.read().decode(errors="replace").strip().splitlines()
        return lines[-1].removeprefix("midspan: ") if lines else f"it ended with status {status}"


def _spawn(launch: Launch) -> tuple[int, subprocess.Popen[bytes]]:
    """Starts a host; returns where in the log its words begin, and its process."""
    launch.log.parent.mkdir(parents=True, exist_ok=True)
    fresh = os.O_TRUNC if launch.log.exists() and launch.log.stat().st_size > MAX_LOG_BYTES else 0
    log_fd = os.open(launch.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | fresh, 0o600)
    # -P: the folder that an editor was started in must never be a source of modules.
    command = [sys.executable, "-P", "-m", "midspan_engine", "host", "--socket", str(launch.socket)]
    command += ["--checkpoint", str(launch.checkpoint), "--idle-minutes", str(launch.idle_minutes)]
    environment = os.environ if launch.weights is None else os.environ | {WEIGHTS_VARIABLE: launch.weights}
    try:
        log_start = os.fstat(log_fd).st_size
        process = subprocess.Popen(
            command,
            cwd="/",
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log_fd,
            stderr=log_fd,
            start_new_session=True,
        )
        return log_start, process
    finally:
        os.close(log_fd)


def embedded_checkpoint() -> Path:
    """Returns the folder of the checkpoint that ships with the engine, found without importing torch."""
    return Path(str(importlib.resources.files("midspan_engine") / "checkpoint"))


def _runtime_folder(name: str) -> Path:
    """Returns the folder for the socket `name`: one that is short enough and closed to other users."""
    if override := os.environ.get("MIDSPAN_RUNTIME_DIR"):
        folder = Path(override).expanduser().absolute()
        if not _is_short_enough(folder / name):
            raise InputError(f"MIDSPAN_RUNTIME_DIR={override} is too long for a unix socket; choose a shorter path")
        return folder
    for folder in _runtime_candidates():
        if _is_short_enough(folder / name) and (not folder.exists() or _is_private(folder)):
            return folder
    raise InputError("no private folder for the engine's socket; set MIDSPAN_RUNTIME_DIR to a folder of mode 700")


def _runtime_candidates() -> Iterator[Path]:
    # PermissionError: somebody else owns the folder that platformdirs would choose.
    with contextlib.suppress(PermissionError):
        yield _platform_runtime_folder()
    yield Path(platformdirs.user_cache_dir("midspan")) / "run"
    for parent in dict.fromkeys((tempfile.gettempdir(), "/tmp")):
        yield Path(parent) / f"midspan-{os.getuid()}"


def _platform_runtime_folder() -> Path:
    with warnings.catch_warnings():
        # It warns about a missing XDG_RUNTIME_DIR, as in containers; we check its fallback ourselves.
        warnings.simplefilter("ignore")
        return Path(platformdirs.user_runtime_dir("midspan"))


def _is_short_enough(socket: Path) -> bool:
    return len(os.fsencode(socket)) <= MAX_SOCKET_PATH_BYTES


def _is_private(folder: Path) -> bool:
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not stat.S_IMODE(found.st_mode) & 0o077
