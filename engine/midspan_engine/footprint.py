"""How much memory the real processes take: an engine host that has answered a fill, and a language server."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from midspan_engine.errors import EngineError
from midspan_engine.framing import pack, read_reply
from midspan_engine.protocol import EngineStatus, Fill, Shutdown, StatusRequest

_START_TIMEOUT_S = 60.0
"""A host listens within a second; a machine under load gets a minute."""


class Memory(msgspec.Struct, frozen=True):
    """Resident memory of both processes, MB."""

    engine: float
    front_end: float


def measure_memory(checkpoint: Path, parts: tuple[str, str]) -> Memory:
    """Starts both processes, asks the engine for one fill, and returns their resident memory.

    Raises EngineError when one of them does not come up.
    """
    with tempfile.TemporaryDirectory(prefix="midspan-") as folder:
        engine = asyncio.run(_engine_bytes(checkpoint, Path(folder) / "engine.sock", parts))
    return Memory(engine / 1e6, _front_end_bytes() / 1e6)


async def _engine_bytes(checkpoint: Path, socket: Path, parts: tuple[str, str]) -> int:
    command = [sys.executable, "-m", "midspan_engine", "host", "--socket", str(socket)]
    command += ["--checkpoint", str(checkpoint), "--idle-minutes", "1"]
    host = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        reader, writer = await _connect(socket, host)
        writer.write(pack(Fill(id=1, document="memory", parts=parts)))
        await read_reply(reader)
        writer.write(pack(StatusRequest(id=2)))
        status = await read_reply(reader)
        writer.write(pack(Shutdown()))
        await writer.drain()
        writer.close()
        if not isinstance(status, EngineStatus):
            raise EngineError("the engine did not tell its memory; run `midspan engine stop` and try again")
        return status.rss_bytes
    finally:
        host.terminate()
        host.wait()


async def _connect(socket: Path, host: subprocess.Popen[bytes]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    until = time.monotonic() + _START_TIMEOUT_S
    while True:
        try:
            return await asyncio.open_unix_connection(socket)
        except OSError as error:
            if time.monotonic() > until or host.poll() is not None:
                raise EngineError("the engine host does not come up; run `midspan engine start` to see why") from error
            await asyncio.sleep(0.05)


def _front_end_bytes() -> int:
    command = [sys.executable, "-m", "midspan_server", "lsp"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdin is not None, "it is a pipe"
        assert server.stdout is not None, "it is a pipe"
        body = json.dumps(
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"capabilities": {}, "processId": None}}
        ).encode()
        server.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        server.stdin.flush()
        server.stdout.readline()  # the answer has begun, so everything is imported
        resident = next(
            line for line in Path(f"/proc/{server.pid}/status").read_text().splitlines() if line.startswith("VmRSS")
        )
        server.kill()
    return int(resident.split()[1]) * 1024
