"""Clients that come, ask, and go in every way, and sockets that are cut in the middle of an answer."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from pathlib import Path

import msgspec

from midspan_engine.framing import pack, read_reply
from midspan_engine.protocol import EngineStatus, Fill, Filled, StatusRequest
from midspan_server.engine_client import EngineClient
from midspan_server.launch import Launch
from soak.measures import Spread, resident_mb
from soak.type_along import left_behind

FILL = Fill(id=1, document="storm.py", parts=("def add(a, b):\n    return ", "\n"), max_tokens=8)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a storm."""

    connects: int
    files_before: int
    """Open files of the engine."""
    files_after: int
    mb_before: float
    mb_after: float
    clients_after: int
    """The one that asks included."""
    documents_after: int
    cuts: int
    answered: int
    """Fills that were answered although their connection was cut."""
    ms: Spread
    """From asking to the answer, of these."""
    left_behind: list[str]


async def run(folder: Path, *, n_connects: int, n_cuts: int, seed: int) -> Report:
    """Connects and leaves `n_connects` times, then cuts the connection of `n_cuts` fills."""
    rng = random.Random(seed)
    launch = Launch.resolve()
    async with EngineClient(launch) as client:
        await client.fill(FILL)
        for _ in range(n_connects // 10):
            await _come_and_go(launch, rng)
        before = await _settled(client)
        files_before, mb_before = _n_files(before.pid), resident_mb(before.pid) or 0.0
        for _ in range(n_connects):
            await _come_and_go(launch, rng)
        ms = await _cut(launch, folder / "relay.sock", n_cuts, rng)
        after = await _settled(client)
        report = Report(
            connects=n_connects,
            files_before=files_before,
            files_after=_n_files(after.pid),
            mb_before=round(mb_before, 1),
            mb_after=round(resident_mb(after.pid) or 0.0, 1),
            clients_after=len(after.clients),
            documents_after=after.n_documents,
            cuts=n_cuts,
            answered=len(ms),
            ms=Spread.of(ms),
            left_behind=[],
        )
        await client.shutdown_host()
    return msgspec.structs.replace(report, left_behind=await left_behind(launch))


async def _come_and_go(launch: Launch, rng: random.Random) -> None:
    streams = await launch.connect()
    assert streams is not None, "the engine has gone"
    reader, writer = streams
    fill = pack(msgspec.structs.replace(FILL, document=f"{rng.randrange(50)}.py"))
    match rng.randrange(4):
        case 0:  # leaves at once
            pass
        case 1:  # asks who is there, and waits for the answer
            writer.write(pack(StatusRequest(id=1)))
            await read_reply(reader)
        case 2:  # leaves inside a message
            writer.write(fill[: rng.randrange(1, len(fill))])
        case 3:  # leaves before the answer
            writer.write(fill)
    with contextlib.suppress(ConnectionError):
        await writer.drain()
    if rng.random() < 0.5:
        writer.transport.abort()
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def _settled(client: EngineClient) -> EngineStatus:
    """Returns the state of the engine once it has noticed who has left, or after a while."""
    for _ in range(200):
        status = await client.status()
        assert status is not None, "the engine has gone"
        if len(status.clients) == 1 and status.state == "ready" and status.n_documents <= 1:
            break
        await asyncio.sleep(0.05)
    return status


async def _cut(launch: Launch, path: Path, n_cuts: int, rng: random.Random) -> list[float]:
    """Returns how long fills took whose connection was cut once, of those that were answered."""
    loop = asyncio.get_running_loop()
    relay = _Relay(launch)
    server = await asyncio.start_unix_server(relay.serve, path)
    path.parent.chmod(0o700)
    took = []
    async with EngineClient(msgspec.structs.replace(launch, socket=path)) as client:
        for number in range(n_cuts):
            await client.status()
            began = loop.time()
            asked = asyncio.create_task(client.fill(msgspec.structs.replace(FILL, document=f"cut{number}.py")))
            await asyncio.sleep(rng.uniform(0.0, 0.03))
            relay.cut()
            if isinstance(await asked, Filled):
                took.append((loop.time() - began) * 1000)
    server.close()
    relay.cut()
    return took


class _Relay:
    """Stands between a client and the engine, and can cut both off."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        streams = await self._launch.connect()
        assert streams is not None, "the engine has gone"
        self._writers += [writer, streams[1]]
        await asyncio.gather(_pass_on(reader, streams[1]), _pass_on(streams[0], writer))

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(2**16):
            writer.write(data)
    writer.transport.abort()


def _n_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))
