"""What passes between a language server and its neighbours, overheard: drafts told to VS Code, fills asked for."""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from workbench import PROGRAMS, Workbench, run_midspan

from midspan_engine.protocol import Fill, Request

_requests = msgspec.msgpack.Decoder(Request)


class Tap:
    """A program `midspan` whose language server can be overheard on both of its sides."""

    def __init__(self, folder: Path) -> None:
        self.program = folder / "midspan"
        self.requests: list[Request] = []
        """What the engine was asked, oldest first."""
        self._said = folder / "said"

    @classmethod
    @contextmanager
    def on(cls, workbench: Workbench) -> Iterator[Tap]:
        """Taps the way to the engine of a workbench while the block lasts."""
        engine = Path(run_midspan(workbench, "status")["socket"])
        folder = Path(tempfile.mkdtemp(prefix="tap-", dir=workbench.folders.home))
        tap = cls(folder)
        tap.program.write_text(
            f'#!/bin/sh\nexport MIDSPAN_RUNTIME_DIR="{folder}"\n"{PROGRAMS / "midspan"}" "$@" | tee "{tap._said}"\n'
        )
        tap.program.chmod(0o755)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(str(folder / engine.name))
            listener.listen()
            threading.Thread(target=tap._accept, args=(listener, engine), daemon=True).start()
            yield tap
            listener.shutdown(socket.SHUT_RDWR)

    @property
    def fills(self) -> list[Fill]:
        """Those of the requests that asked for text."""
        return [request for request in self.requests if isinstance(request, Fill)]

    @property
    def n_drafts(self) -> int:
        """How many drafts the server has told the editor of."""
        return self._said.read_bytes().count(b'"midspan/draft"')

    def _accept(self, listener: socket.socket, engine: Path) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=self._relay, args=(client, engine), daemon=True).start()

    def _relay(self, client: socket.socket, engine: Path) -> None:
        with client, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as host, suppress(OSError):
            host.connect(str(engine))
            back = threading.Thread(target=_pass_on, args=(host, client), daemon=True)
            back.start()
            self._hear(client, host)
            host.shutdown(socket.SHUT_WR)
            back.join()

    def _hear(self, client: socket.socket, host: socket.socket) -> None:
        """Passes frames on, see `midspan_engine.framing`, and keeps what is in them."""
        with client.makefile("rb") as stream:
            while header := stream.read(4):
                body = stream.read(int.from_bytes(header))
                self.requests.append(_requests.decode(body))
                host.sendall(header + body)


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(2**16):
            target.sendall(data)
