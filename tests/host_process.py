"""Real engine hosts for tests, and a blocking client that frames its messages itself."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from midspan_engine.framing import pack
from midspan_engine.protocol import EngineStatus, Fill, Reply, Request, StatusRequest

TROUBLED = (str(Path(__file__).with_name("troubled_host.py")),)
"""A host that fails on demand."""

PATIENCE_S = 120.0
"""How long a wait may take on a busy machine before it counts as hanging."""


def fill(id: int = 1, **changes: object) -> Fill:
    values = {"document": "file:///a.py", "parts": ("def add(a, b):\n    return ", "\n"), **changes}
    return Fill(id=id, **values)  # type: ignore[arg-type]


def wait_until(claim: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not claim():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    """Says whether a process has not ended; only /proc tells it of somebody else's child."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


class Client:
    """A blocking client that speaks the frames itself, so that the host is not tested by our own client alone."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(PATIENCE_S)
        try:
            self.socket.connect(str(path))
        except OSError:
            self.socket.close()
            raise

    def send(self, request: Request) -> None:
        self.socket.sendall(pack(request))

    def receive(self) -> Reply | None:
        header = self._read(4)
        if header is None:
            return None
        body = self._read(struct.unpack(">I", header)[0])
        assert body is not None, "the host ended inside a frame"
        return msgspec.msgpack.decode(body, type=Reply)

    def ask(self, request: Request) -> Reply | None:
        self.send(request)
        return self.receive()

    def status(self) -> EngineStatus:
        reply = self.ask(StatusRequest(id=999))
        assert isinstance(reply, EngineStatus)
        return reply

    def wait_for_state(self, state: str) -> None:
        wait_until(lambda: self.status().state == state)

    def is_closed_by_host(self) -> bool:
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.socket.close()

    def _read(self, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            try:
                piece = self.socket.recv(size - len(data))
            except ConnectionError:
                return None
            if not piece:
                return None
            data += piece
        return data


class Hosts:
    """Starts hosts on one socket and ends them with the test."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "run" / "engine.sock"
        self.log = folder / "hosts.log"
        self.started: list[subprocess.Popen[bytes]] = []
        self._clients: list[Client] = []

    def start(
        self, checkpoint: Path, idle_minutes: float = 10, program: Sequence[str] = ("-m", "midspan_engine", "host")
    ) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", *program, "--socket", str(self.socket)]
        command += ["--checkpoint", str(checkpoint), "--idle-minutes", str(idle_minutes)]
        with self.log.open("ab") as log:
            host = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log)
        self.started.append(host)
        return host

    def client(self) -> Client:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                self._clients.append(Client(self.socket))
            except (FileNotFoundError, ConnectionError):
                assert time.monotonic() < deadline, "no host listens"
                time.sleep(0.02)
            else:
                return self._clients[-1]

    def end(self) -> None:
        for client in self._clients:
            client.close()
        for host in self.started:
            host.kill()
            host.wait()
