"""The front end's engine client with real engine hosts, started and killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import stat
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from engine_host import listening, offer, scenario
from host_process import PATIENCE_S
from midspan_engine.errors import EngineUnavailable, InputError, MidspanError
from midspan_engine.protocol import Draft, Fill, Filled
from midspan_server.engine_client import EngineClient
from midspan_server.launch import Launch, embedded_checkpoint

needs_model = pytest.mark.skipif(
    not (embedded_checkpoint() / "config.json").exists(), reason="the embedded checkpoint is not part of this tree"
)

FILL = Fill(id=0, document="file:///a.py", parts=("def add(a, b):\n    return ", "\n"), max_tokens=8)


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIDSPAN_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("MIDSPAN_CHECKPOINT", raising=False)


@pytest.fixture
def launches() -> Iterator[Callable[[Path], Launch]]:
    """Resolves launches, and kills at the end whichever hosts they left behind."""
    resolved: list[Launch] = []

    def resolve(checkpoint: Path) -> Launch:
        # A host that comes last in a race may take over after the test: it must not stay for long.
        resolved.append(msgspec.structs.replace(Launch.resolve(checkpoint), idle_minutes=0.5))
        return resolved[-1]

    yield resolve
    for launch in resolved:
        asyncio.run(_end_host(launch))


async def _end_host(launch: Launch) -> None:
    async with EngineClient(launch) as client:
        await client.shutdown_host()


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launch]:
    """The embedded checkpoint's host, shared by tests because importing torch takes seconds."""
    folder = tmp_path_factory.mktemp("embedded")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("MIDSPAN_RUNTIME_DIR", str(folder / "run"))
        environment.setenv("XDG_STATE_HOME", str(folder / "state"))
        launch = Launch.resolve(embedded_checkpoint())
    yield launch
    asyncio.run(_end_host(launch))


@pytest.fixture
def no_model(launches: Callable[[Path], Launch], tmp_path: Path) -> Launch:
    """A host that listens, but whose checkpoint does not exist."""
    return launches(tmp_path / "no-such-checkpoint")


def run(scenario: Callable[[EngineClient], Awaitable[None]], launch: Launch) -> None:
    async def with_client() -> None:
        async with EngineClient(launch) as client, asyncio.timeout(PATIENCE_S):
            await scenario(client)

    asyncio.run(with_client())


async def pid_of_host(client: EngineClient) -> int:
    status = await client.status()
    assert status is not None, "no host runs"
    return status.pid


def test_status_of_no_host_is_none_and_starts_none(no_model: Launch) -> None:
    async def scenario(client: EngineClient) -> None:
        assert await client.status() is None
        assert await client.shutdown_host() is False
        assert not no_model.socket.exists()
        assert not no_model.log.exists()

    run(scenario, no_model)


def test_fill_starts_the_host_and_tells_why_it_cannot_answer(no_model: Launch) -> None:
    async def scenario(client: EngineClient) -> None:
        for _ in range(2):
            with pytest.raises(InputError, match="no-such-checkpoint"):
                await client.fill(FILL)
        status = await client.status()
        assert status is not None
        assert status.state == "failed"
        assert status.n_fills == 2

    run(scenario, no_model)
    assert stat.S_IMODE(no_model.log.stat().st_mode) == 0o600


def test_host_outlives_its_client_and_serves_the_next(no_model: Launch) -> None:
    pids = []

    async def scenario(client: EngineClient) -> None:
        with pytest.raises(InputError):
            await client.fill(FILL)
        pids.append(await pid_of_host(client))

    run(scenario, no_model)
    run(scenario, no_model)
    assert pids[0] == pids[1]


def test_clients_starting_at_once_share_one_host(no_model: Launch) -> None:
    async def scenario(_: EngineClient) -> None:
        clients = [EngineClient(no_model) for _ in range(4)]
        failures = await asyncio.gather(*(client.fill(FILL) for client in clients), return_exceptions=True)
        assert [type(failure) for failure in failures] == [InputError] * 4
        assert len({await pid_of_host(client) for client in clients}) == 1
        for client in clients:
            await client.close()

    run(scenario, no_model)


def test_killed_host_is_replaced_by_the_next_fill(no_model: Launch) -> None:
    async def scenario(client: EngineClient) -> None:
        pids = set()
        for _ in range(3):
            with pytest.raises(InputError):
                await client.fill(FILL)
            pids.add(pid := await pid_of_host(client))
            os.kill(pid, signal.SIGKILL)
        assert len(pids) == 3

    run(scenario, no_model)


def test_engine_that_dies_at_every_fill_is_not_started_in_a_loop(
    launches: Callable[[Path], Launch], tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    launch = launches(tmp_path / "empty")

    async def kill_every_host() -> None:
        """Plays a fill that crashes the engine, while the host still imports torch to read the empty folder."""
        while True:
            observer = EngineClient(launch)
            with contextlib.suppress(EngineUnavailable, ProcessLookupError):
                if (status := await observer.status()) is not None:
                    os.kill(status.pid, signal.SIGKILL)
            await observer.close()
            await asyncio.sleep(0.005)

    async def scenario(client: EngineClient) -> None:
        killer = asyncio.create_task(kill_every_host())
        message = ""
        while "trying again in" not in message:
            try:
                await client.fill(FILL)
            except MidspanError as error:
                message = str(error)
        killer.cancel()

    run(scenario, launch)


def test_host_that_cannot_start_says_why_and_is_not_started_in_a_loop(no_model: Launch) -> None:
    # A folder in place of the lock file: the host leaves with a message, in every attempt.
    no_model.socket.parent.mkdir(mode=0o700)
    no_model.socket.with_suffix(".lock").mkdir()

    async def scenario(client: EngineClient) -> None:
        for _ in range(2):
            with pytest.raises(EngineUnavailable, match=r"the engine cannot start: the lock file .* cannot be opened"):
                await client.fill(FILL)
        log = no_model.log.read_text()
        for _ in range(20):
            with pytest.raises(EngineUnavailable, match=r"cannot be opened.*trying again in \d+ s"):
                await client.fill(FILL)
        assert no_model.log.read_text() == log, "a host was started during the pause"

    run(scenario, no_model)


def test_folder_open_to_others_is_not_connected_to(no_model: Launch) -> None:
    no_model.socket.parent.mkdir()
    no_model.socket.parent.chmod(0o777)

    async def scenario(client: EngineClient) -> None:
        with pytest.raises(EngineUnavailable, match="chmod 700"):
            await client.fill(FILL)

    run(scenario, no_model)
    no_model.socket.parent.chmod(0o700)


def test_text_that_is_not_unicode_is_refused_before_it_is_sent(no_model: Launch) -> None:
    async def scenario(client: EngineClient) -> None:
        with pytest.raises(InputError, match="surrogate"):
            await client.fill(msgspec.structs.replace(FILL, parts=("\ud83d", "")))
        with pytest.raises(InputError, match="exceeds the limit"):
            await client.fill(msgspec.structs.replace(FILL, parts=("x" * (64 * 2**20), "")))
        with pytest.raises(InputError, match="no-such-checkpoint"):
            await client.fill(FILL)

    run(scenario, no_model)


def test_cancelling_a_fill_does_not_stop_the_start_that_others_wait_for(no_model: Launch) -> None:
    async def scenario(client: EngineClient) -> None:
        first, second = asyncio.create_task(client.fill(FILL)), asyncio.create_task(client.fill(FILL))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(InputError, match="no-such-checkpoint"):
            await second
        assert first.cancelled()

    run(scenario, no_model)


def test_closing_the_client_ends_the_fills_that_wait(no_model: Launch) -> None:
    async def scenario(client: EngineClient) -> None:
        waiting = asyncio.create_task(client.fill(FILL))
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(EngineUnavailable, match="closed"):
            await waiting

    run(scenario, no_model)


def test_shutdown_ends_the_host(no_model: Launch) -> None:
    async def scenario(client: EngineClient) -> None:
        with pytest.raises(InputError):
            await client.fill(FILL)
        assert await client.shutdown_host() is True
        assert await client.status() is None

    run(scenario, no_model)


def test_frozen_host_is_left_when_asked_for_its_status(no_model: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("midspan_server.engine_client.ANSWER_TIMEOUT_S", 0.2)

    async def scenario(client: EngineClient) -> None:
        with pytest.raises(InputError):
            await client.fill(FILL)
        pid = await pid_of_host(client)
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(EngineUnavailable, match="does not answer"):
                await client.status()
        finally:
            os.kill(pid, signal.SIGCONT)

    run(scenario, no_model)


@pytest.mark.parametrize("deadline_ms", [50.0, None])
def test_fill_of_a_frozen_host_ends_with_a_reason(
    no_model: Launch, monkeypatch: pytest.MonkeyPatch, deadline_ms: float | None
) -> None:
    for patience in ("ANSWER_TIMEOUT_S", "LIFE_TIMEOUT_S", "GRACE_S"):
        monkeypatch.setattr(f"midspan_server.engine_client.{patience}", 0.2)

    async def scenario(client: EngineClient) -> None:
        with pytest.raises(InputError):
            await client.fill(FILL)
        pid = await pid_of_host(client)
        os.kill(pid, signal.SIGSTOP)
        request = msgspec.structs.replace(FILL, deadline_ms=deadline_ms)
        try:
            fills = await asyncio.gather(*(client.fill(request) for _ in range(2)), return_exceptions=True)
            assert [type(outcome) for outcome in fills] == [EngineUnavailable] * 2
            assert "does not answer" in str(fills[0])
            assert "midspan engine stop" in str(fills[0])
        finally:
            os.kill(pid, signal.SIGCONT)

    run(scenario, no_model)


@scenario
async def test_a_slow_engine_that_shows_life_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("midspan_server.engine_client.GRACE_S", 0.01)
    launch = Launch(checkpoint=tmp_path, socket=tmp_path / "run" / "e.sock", log=tmp_path / "log")
    async with listening(launch.socket) as host, EngineClient(launch) as client:
        asked = asyncio.create_task(client.fill(FILL))
        await host.until(lambda: host.n_statuses >= 5)
        await host.release(offer("a + b"))
        assert (await asked).candidates[0].text == "a + b"


def test_frozen_host_is_killed_when_it_is_to_end(no_model: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("midspan_server.engine_client.ANSWER_TIMEOUT_S", 0.2)

    async def scenario(client: EngineClient) -> None:
        with pytest.raises(InputError):
            await client.fill(FILL)
        os.kill(await pid_of_host(client), signal.SIGSTOP)
        assert await client.shutdown_host() is True
        assert await client.status() is None

    run(scenario, no_model)


@needs_model
def test_several_fills_are_answered_on_one_connection(embedded: Launch) -> None:
    async def scenario(client: EngineClient) -> None:
        drafts: list[Draft] = []
        one, watched, three = (msgspec.structs.replace(FILL, document=f"{n}.py", watch=n == 2) for n in (1, 2, 3))
        answers = await asyncio.gather(client.fill(one), client.fill(watched, drafts.append), client.fill(three))
        assert all(isinstance(answer, Filled) for answer in answers)
        assert len(drafts) == answers[1].stats.steps + answers[1].stats.encoder_steps > 0
        assert answers[0].candidates == answers[2].candidates
        for fill in (one, watched, three):
            client.forget(fill.document)
        while (status := await client.status()) is None or status.n_documents > 0:
            await asyncio.sleep(0.01)

    run(scenario, embedded)


@needs_model
def test_cancelled_fill_returns_at_once_and_the_next_is_answered(embedded: Launch) -> None:
    async def scenario(client: EngineClient) -> None:
        await client.fill(FILL)
        long = msgspec.structs.replace(FILL, single_line=False, max_tokens=64)
        fills = [
            asyncio.create_task(client.fill(msgspec.structs.replace(long, document=f"{number}.py")))
            for number in range(20)
        ]
        await asyncio.sleep(0)
        for fill in fills:
            fill.cancel()
        ends = await asyncio.gather(*fills, return_exceptions=True)
        assert [type(end) for end in ends] == [asyncio.CancelledError] * 20
        assert isinstance(await client.fill(FILL), Filled)

    run(scenario, embedded)


@needs_model
def test_fill_interrupted_by_a_killed_engine_is_asked_again(embedded: Launch) -> None:
    async def scenario(client: EngineClient) -> None:
        await client.fill(FILL)
        first = await pid_of_host(client)

        drafts: list[Draft] = []

        def kill_at_first(draft: Draft) -> None:
            if not drafts:
                os.kill(first, signal.SIGKILL)
            drafts.append(draft)

        answer = await client.fill(msgspec.structs.replace(FILL, watch=True), kill_at_first)
        n_passes = answer.stats.steps + answer.stats.encoder_steps
        assert len(drafts) > n_passes > 0, "the engine died before it had shown anything"
        assert await pid_of_host(client) != first

    run(scenario, embedded)


@needs_model
def test_error_of_a_draft_callback_reaches_the_one_who_asked(embedded: Launch) -> None:
    def fail(draft: Draft) -> None:
        raise ValueError("cannot draw")

    async def scenario(client: EngineClient) -> None:
        with pytest.raises(ValueError, match="cannot draw"):
            await client.fill(msgspec.structs.replace(FILL, watch=True), fail)
        assert isinstance(await client.fill(FILL), Filled)

    run(scenario, embedded)


@needs_model
def test_unusable_fill_is_the_fault_of_the_one_who_asked(embedded: Launch) -> None:
    async def scenario(client: EngineClient) -> None:
        with pytest.raises(InputError):
            await client.fill(msgspec.structs.replace(FILL, parts=("only one part",)))

    run(scenario, embedded)
