"""The life of the engine as its clients see it: who starts it, what they are told, and what is left behind."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import io
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from command_line import environment_in, midspan
from engine_host import listening, offer, scenario
from host_process import PATIENCE_S, is_running, wait_until
from lsp_client import running
from midspan_engine.errors import EngineError, InputError
from midspan_engine.gone_clients import GoneClients
from midspan_engine.protocol import ClientStatus, EngineStatus, Failed, Fill, Report
from midspan_server.engine_client import EngineClient
from midspan_server.launch import Launch
from midspan_server.status_command import status_table

ROOT = Path(__file__).parent.parent
FILL = Fill(id=0, document="file:///a.py", parts=("def add(a, b):\n    return ", "\n"), max_tokens=8)
FULL = Path("/dev/full")
"""A file on a disk that is always full."""

needs_proc = pytest.mark.skipif(
    not Path("/proc").is_dir(), reason="only /proc tells what became of somebody else's child"
)


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIDSPAN_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("MIDSPAN_CHECKPOINT", raising=False)


@pytest.fixture
def no_model(tmp_path: Path) -> Iterator[Launch]:
    """An engine that listens, but whose checkpoint does not exist."""
    launch = Launch.resolve(tmp_path / "no-such-checkpoint", idle_minutes=0.5)
    yield launch
    asyncio.run(_stop(launch))


async def _stop(launch: Launch) -> None:
    async with EngineClient(launch) as client:
        await client.shutdown_host()


@scenario
async def test_the_idle_time_that_a_client_wants_is_that_of_the_engine_it_starts(no_model: Launch) -> None:
    async with EngineClient(no_model, name="a test") as client:
        with pytest.raises(InputError):
            await client.fill(FILL)
        status = await client.status()
        assert status is not None
        assert status.idle_s == 30
        assert [served.name for served in status.clients] == ["a test"]
        for minutes in (0.0, float("nan")):
            with pytest.raises(InputError, match="give more than 0"):
                await client.set_idle(minutes)
        await client.set_idle(0.01)
        while await client.status() is not None:
            await asyncio.sleep(0.05)


@scenario
async def test_a_client_is_told_how_far_the_loading_is_and_when_it_is_over(tmp_path: Path) -> None:
    launch = Launch(checkpoint=tmp_path, socket=tmp_path / "run" / "e.sock", log=tmp_path / "log")
    told: list[float | None] = []
    over = asyncio.Event()

    def note(share: float | None) -> None:
        told.append(share)
        if share is None:
            over.set()

    async with listening(launch.socket) as host, EngineClient(launch, on_loading=note) as client:
        host.states = [("loading", 0.1), ("loading", 0.6), ("ready", 1.0)]
        host.answer = offer("a + b")
        assert (await client.fill(FILL)).candidates
        await over.wait()
        await client.fill(FILL)
    assert told == [0.1, 0.6, None]


@scenario
async def test_status_tells_what_the_front_ends_have_counted_and_why_they_were_silent(no_model: Launch) -> None:
    told = Report(counts={"shown": 3, "accepted": 1}, silences=("the file is excluded", "inside a string"))
    async with EngineClient(no_model, name="an editor", report=lambda: told) as client:
        with pytest.raises(InputError):
            await client.fill(FILL)
        while (status := await client.status()) is None or status.clients[0].report != told:
            await asyncio.sleep(0.05)
        table = status_table(status, no_model)
        shown = Console(width=200, file=io.StringIO(), record=True)
        shown.print(table)
        text = shown.export_text()
    assert "1 accepted, 3 shown" in text
    assert "inside a string" in text


@scenario
async def test_what_clients_had_counted_is_told_after_they_have_left(no_model: Launch) -> None:
    async def come_and_go(name: str, accepted: int) -> None:
        async with EngineClient(no_model, name=name, report=lambda: Report(counts={"accepted": accepted})) as client:
            with pytest.raises(InputError):
                await client.fill(FILL)

    async with EngineClient(no_model, name="a look") as look:
        with pytest.raises(InputError):
            await look.fill(FILL)
        await come_and_go("an editor", 2)
        await come_and_go("another", 3)
        while (status := await look.status()) is None or len(status.gone) < 2:
            await asyncio.sleep(0.02)
        assert status.gone == {"an editor": {"accepted": 2}, "another": {"accepted": 3}}
        shown = Console(width=200, file=io.StringIO(), record=True)
        shown.print(status_table(status, no_model))
        assert "an editor: 2 accepted" in shown.export_text()
        shown.print(status_table(msgspec.structs.replace(status, gone={}), no_model))
        assert re.search(r"clients that left +none +$", shown.export_text(), re.MULTILINE)


def test_clients_of_a_name_are_summed_and_one_that_came_back_is_counted_once() -> None:
    def client(pid: int, accepted: int, counter: str = "") -> ClientStatus:
        report = Report(counts={"accepted": accepted}, counter=counter)
        return ClientStatus(name="vi", pid=pid, connected_s=0.0, n_fills=1, n_waiting=0, report=report)

    gone = GoneClients()
    for each in (client(1, 2), client(2, 3), client(1, 5)):
        gone.add(each)
    assert gone.counts([]) == {"vi": {"accepted": 8}}
    assert gone.counts([client(1, 6)]) == {"vi": {"accepted": 3}}
    for each in (client(2, 10, "a"), client(2, 20, "b"), client(2, 11, "a")):
        gone.add(each)
    assert gone.counts([]) == {"vi": {"accepted": 39}}, "each of a process that holds several"


def test_a_loading_that_gets_no_further_is_pointed_out(no_model: Launch) -> None:
    def state(quiet_s: float) -> str:
        status = EngineStatus(
            id=1, version="", pid=1, checkpoint="", device="", state="loading", progress=0.4, loading_quiet_s=quiet_s
        )
        shown = Console(width=200, file=io.StringIO(), record=True)
        shown.print(status_table(status, no_model))
        return shown.export_text()

    assert "loading, 40%, no further for 45 s" in state(45.0)
    assert "no further" not in state(5.0)


@scenario
async def test_an_engine_that_ends_with_its_answer_is_replaced_and_its_reason_told(no_model: Launch) -> None:
    async with listening(no_model.socket) as host, EngineClient(no_model) as client:
        host.answer = lambda fill: Failed(id=fill.id, message="the engine ran out of memory", is_final=True)
        with pytest.raises(EngineError, match="ran out of memory"):
            await client.fill(FILL)
        no_model.socket.unlink()
        with pytest.raises(InputError, match="no-such-checkpoint"):
            await client.fill(FILL)


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@scenario
async def test_an_engine_whose_log_is_on_a_full_disk_answers_all_the_same(no_model: Launch) -> None:
    async with EngineClient(msgspec.structs.replace(no_model, log=FULL)) as client:
        for _ in range(3):
            with pytest.raises(InputError, match="no-such-checkpoint"):
                await client.fill(FILL)
        await client.shutdown_host()


@needs_proc
def test_start_shows_and_sets_what_status_tells_and_stop_leaves_nothing(tmp_path: Path) -> None:
    environment = environment_in(tmp_path)
    started = midspan(environment, "engine", "start", "--idle-minutes", "5", "--json")
    assert (started.returncode, started.stderr.decode()) == (0, "")
    engine = msgspec.convert(msgspec.json.decode(started.stdout)["engine"], EngineStatus)
    assert (engine.state, engine.progress, engine.idle_s) == ("ready", 1.0, 300)
    assert engine.budget.startswith("weights ")
    again = midspan(environment, "engine", "start", "--idle-minutes", "7")
    assert f"Its memory: {engine.budget}." in again.stderr.decode()
    told = midspan(environment, "status").stdout.decode()
    for words in (
        "after 7 min without a fill",
        "midspan status: process",
        "0 waiting",
        "last failure",
        "MiB",
        "KV cache",
    ):
        assert words in told
    assert midspan(environment, "engine", "stop").returncode == 0
    wait_until(lambda: not is_running(engine.pid))
    assert list(Path(environment["MIDSPAN_RUNTIME_DIR"]).iterdir()) == []


def test_the_terminal_shows_the_loading_of_the_model(tmp_path: Path) -> None:
    environment = environment_in(tmp_path) | {"TERM": "xterm", "COLUMNS": "100"}
    terminal, end = pty.openpty()
    program = [sys.executable, "-m", "midspan_server", "engine", "start"]
    started = subprocess.Popen(program, env=environment, stdout=subprocess.DEVNULL, stderr=end)
    os.close(end)
    shown = b""
    with contextlib.suppress(OSError):  # on Linux the end of a terminal is an error
        while data := os.read(terminal, 4096):
            shown += data
    os.close(terminal)
    assert started.wait(PATIENCE_S) == 0
    assert b"loading the model" in shown
    shares = [int(share) for share in re.findall(rb"(\d+)%", shown)]
    assert shares == sorted(shares)
    assert shares[-1] == 100, "a small model may be there before it is half shown"
    assert midspan(environment, "engine", "stop").returncode == 0


@scenario
async def test_the_editor_shows_the_loading_of_the_model_and_the_engine_knows_the_editor() -> None:
    async with running() as client:
        shows = {"textDocument": {"inlineCompletion": {}}, "window": {"workDoneProgress": True}}
        params = {"processId": None, "rootUri": None, "capabilities": shows, "clientInfo": {"name": "a test"}}
        await client.ask("initialize", params)
        client.notify("initialized", {})
        client.open("def f(a):\n    return ")
        await client.inline(1, 11)
        await client.until_note("$/progress", '"end"')
        status = await client.ask("midspan/status")
        assert await client.leave() == 0
    assert "window/workDoneProgress/create" in client.asked
    told = [params["value"] for name, params in client.notes if name == "$/progress"]
    assert [value["kind"] for value in (told[0], told[-1])] == ["begin", "end"]
    shares = [value["percentage"] for value in told if value["kind"] == "report"]
    assert shares == sorted(shares)
    assert status["engine"]["clients"][0]["name"] == "a test"
    await _stop(Launch.resolve())


@scenario
async def test_no_engine_is_started_while_completion_is_disabled(tmp_path: Path) -> None:
    async with running() as client:
        await client.initialize(options={"enabled": False})
        client.open("def f(a):\n    return ")
        for _ in range(3):
            assert await client.inline(1, 11) == []
        assert "midspan.enabled" in str(await client.reason())
        assert await client.leave() == 0
    assert not (tmp_path / "run").exists()
    assert not list(tmp_path.rglob("*.log"))


def test_nothing_that_serves_asks_for_the_time_of_day() -> None:
    """The clock on the wall jumps, at the end of summer and when a laptop finds its network again."""
    clocks = {"time.time", "time.time_ns", "time.localtime", "datetime.now", "datetime.today", "datetime.utcnow"}
    of_day = []
    for package in ("server/midspan_server", "engine/midspan_engine"):
        for path in (ROOT / package).glob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                # a chat template asks for the date, to tell it to the model
                if isinstance(node, ast.Attribute) and ast.unparse(node) in clocks and path.name != "chat.py":
                    of_day.append(f"{path.name}:{node.lineno}")
                if isinstance(node, ast.ImportFrom) and node.module == "time":
                    of_day.append(f"{path.name}:{node.lineno} imports from time, which hides what is used")
    assert not of_day
