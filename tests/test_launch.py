"""Where an engine is found, and how it is started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from pathlib import Path

import pytest

from engine_host import scenario
from midspan_engine.errors import EngineUnavailable, InputError
from midspan_engine.protocol import Fill
from midspan_server.engine_client import EngineClient
from midspan_server.launch import MAX_SOCKET_PATH_BYTES, Launch, embedded_checkpoint


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIDSPAN_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("MIDSPAN_CHECKPOINT", raising=False)


def test_each_checkpoint_has_a_socket_and_log_of_its_own(tmp_path: Path) -> None:
    one, two = Launch.resolve(tmp_path / "one"), Launch.resolve(tmp_path / "two")
    assert one.socket != two.socket
    assert one.log != two.log
    assert Launch.resolve(tmp_path / "two" / ".." / "one") == one


def test_environment_names_checkpoint_and_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Launch.resolve().checkpoint == embedded_checkpoint().resolve()
    monkeypatch.setenv("MIDSPAN_CHECKPOINT", str(tmp_path / "model"))
    assert Launch.resolve().checkpoint == tmp_path / "model"
    assert Launch.resolve(tmp_path / "given").checkpoint == tmp_path / "given"
    assert Launch.resolve().socket.parent == tmp_path / "run"
    monkeypatch.setenv("MIDSPAN_RUNTIME_DIR", "/tmp/" + "x" * 100)
    with pytest.raises(InputError, match="shorter"):
        Launch.resolve()


def test_socket_path_is_short_and_private_whatever_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MIDSPAN_RUNTIME_DIR")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    long = tmp_path / ("x" * 90)
    long.mkdir(mode=0o700)
    for runtime_dir in (None, str(long), "/nonexistent"):
        if runtime_dir:
            monkeypatch.setenv("XDG_RUNTIME_DIR", runtime_dir)
        monkeypatch.setenv("XDG_CACHE_HOME", str(long))
        monkeypatch.setenv("TMPDIR", str(long))
        assert len(os.fsencode(Launch.resolve(tmp_path).socket)) <= MAX_SOCKET_PATH_BYTES


@scenario
async def test_a_full_queue_of_the_host_is_waited_for(tmp_path: Path) -> None:
    launch = Launch(checkpoint=tmp_path, socket=tmp_path / "run" / "e.sock", log=tmp_path / "log")
    launch.socket.parent.mkdir(mode=0o700)
    with contextlib.ExitStack() as sockets:
        listener = sockets.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(launch.socket))
        listener.listen(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                waiting = sockets.enter_context(socket.socket(socket.AF_UNIX))
                waiting.setblocking(False)
                waiting.connect(str(launch.socket))
        connecting = asyncio.create_task(launch.connect())
        assert await asyncio.wait({connecting}, timeout=0.2) == (set(), {connecting})
        while not connecting.done():
            listener.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                sockets.enter_context(listener.accept()[0])
            await asyncio.sleep(0.01)
        streams = await connecting
        assert streams is not None
        assert streams[1].get_extra_info("peername") == str(launch.socket)
        streams[1].transport.abort()


@scenario
async def test_an_unusable_log_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    log = tmp_path / "file" / "engine.log"
    launch = Launch(checkpoint=tmp_path, socket=tmp_path / "run" / "e.sock", log=log)
    with pytest.raises(EngineUnavailable, match="cannot be started"):
        await launch.start()


def test_a_checkpoint_whose_name_is_not_unicode_is_refused_with_advice(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ck\? has a name that is not UTF-8.*rename it"):
        Launch.resolve(tmp_path / os.fsdecode(b"ck\xff"))


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="only /proc tells how a process was called")
@scenario
async def test_the_engine_is_started_without_the_current_folder_on_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("torch", "json", "msgspec"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a module of the project was imported')\n")
    monkeypatch.chdir(tmp_path)
    async with EngineClient(Launch.resolve(tmp_path / "no-such-checkpoint")) as client:
        with pytest.raises(InputError, match="no-such-checkpoint"):
            await client.fill(Fill(id=0, document="file:///a.py", parts=("x = ", "\n")))
        status = await client.status()
        assert status is not None
        # Its own current folder is / and so harmless, unless somebody put modules there: hence the option too.
        call = Path(f"/proc/{status.pid}/cmdline").read_bytes().split(b"\0")
        assert call[1:4] == [b"-P", b"-m", b"midspan_engine"]
        await client.shutdown_host()
