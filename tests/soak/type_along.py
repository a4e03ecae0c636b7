"""Editors that type against one engine, in peace or while somebody kills, freezes and hides the engine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import resource
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from midspan_server.engine_client import EngineClient
from midspan_server.launch import Launch
from soak import wall_clock
from soak.editor import Editor
from soak.measures import Growth, Spread, engines_of, loop_waits_ms, resident_mb

PATIENCE_S = 120.0
"""How long anything may take on a busy machine before it counts as lost."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a run."""

    n_editors: int
    seconds: float
    keys_wanted: int
    keys: int
    asked: int
    answered: int
    withdrawn: int
    """Taken back by the editor; answered with the error that says so."""
    unanswered: int
    """Neither answered nor told that it was withdrawn."""
    suggested: int
    late: int
    """Suggestions for a text that was typed on meanwhile, as it was then: an editor drops them."""
    wrong: list[str]
    """Suggestions that fit no text since they were asked for, stale ones among them."""
    key_to_suggestion_ms: Spread
    loop_wait_ms: list[Spread]
    """How long something new waited in the event loop of each front end."""
    engine_mb: Growth
    front_end_mb: Growth
    """Of the one that grew most."""
    n_engines: int
    """Engine processes that were seen; more than one where it had to be started again."""
    engine_counts: dict[str, int]
    """Answers of the last engine by what became of them."""
    troubles: list[str]
    """What was done to the engine."""
    recovered: int
    """Editors that the engine served after the last trouble."""
    exit_statuses: list[int]
    left_behind: list[str]
    """Processes and files that should be gone."""


Trouble = Callable[[Launch, random.Random], Awaitable[str]]


async def run(
    folder: Path,
    *,
    n_editors: int,
    seconds: float,
    keys_per_s: float,
    troubles: list[Trouble],
    pause_s: float,
    seed: int,
) -> Report:
    """Types for `seconds`. Every `pause_s` one of `troubles` strikes. The environment must name folders of its own."""
    rng = random.Random(seed)
    launch = Launch.resolve()
    # what is measured in peace has the clock that it would have
    environment = wall_clock.environment(wall_clock.clock_of(launch)) if troubles else os.environ
    editors = await asyncio.gather(
        *(
            Editor.start(
                f"e{number}",
                folder,
                cancels=number % 2 == 0,
                rng=random.Random(rng.random()),
                environment=environment,
            )
            for number in range(n_editors)
        )
    )
    # The engine is loaded before anything is measured: a start takes seconds.
    served = await asyncio.gather(*(editor.until_served(PATIENCE_S) for editor in editors))
    assert all(served), f"the engine did not get ready in {PATIENCE_S:.0f} s"
    for editor in editors:
        editor.begin()
    memory = _Memory(launch, editors)
    watching = asyncio.create_task(memory.watch())
    struck: list[str] = []
    striking = asyncio.create_task(_strike(launch, troubles, pause_s, rng, struck))
    await asyncio.gather(*(editor.type(seconds, keys_per_s) for editor in editors))
    striking.cancel()
    await asyncio.gather(striking, return_exceptions=True)
    watching.cancel()
    await asyncio.gather(*(editor.settle(PATIENCE_S) for editor in editors))
    recovered = await asyncio.gather(*(editor.until_served(PATIENCE_S) for editor in editors))
    unanswered = sum(await asyncio.gather(*(editor.settle(PATIENCE_S) for editor in editors)))
    statuses = [await editor.quit(PATIENCE_S) for editor in editors]
    async with EngineClient(launch) as client:
        status = await client.status()
        await client.shutdown_host()
    tallies = [editor.tally for editor in editors]
    return Report(
        n_editors=n_editors,
        seconds=seconds,
        keys_wanted=round(n_editors * seconds * keys_per_s),
        keys=sum(tally.n_keys for tally in tallies),
        asked=sum(tally.n_asked for tally in tallies),
        answered=sum(tally.n_answered for tally in tallies),
        withdrawn=sum(tally.n_withdrawn for tally in tallies),
        unanswered=unanswered,
        suggested=sum(tally.n_suggested for tally in tallies),
        late=sum(tally.n_late for tally in tallies),
        wrong=[fault for tally in tallies for fault in tally.wrong],
        key_to_suggestion_ms=Spread.of([ms for tally in tallies for ms in tally.ms]),
        loop_wait_ms=loop_waits_ms(folder),
        engine_mb=Growth.of(memory.engine, seconds),
        front_end_mb=max((Growth.of(samples, seconds) for samples in memory.front_ends), key=lambda growth: growth.mb),
        n_engines=len(memory.engines),
        engine_counts=status.counts if status is not None else {},
        troubles=struck,
        recovered=sum(recovered),
        exit_statuses=statuses,
        left_behind=await left_behind(launch),
    )


async def left_behind(launch: Launch) -> list[str]:
    """Returns what is left of an engine that was ended, once there is nothing or the patience is over."""
    for _ in range(100):
        folder = launch.socket.parent
        left = [f"process {pid}" for pid in engines_of(folder)] + [path.name for path in folder.iterdir()]
        if not left:
            break
        await asyncio.sleep(0.1)
    return left


class _Memory:
    """Samples of the resident memory of an engine and of each language server, MB."""

    def __init__(self, launch: Launch, editors: list[Editor]) -> None:
        self.engine: list[float] = []
        self.engines: set[int] = set()
        self.front_ends: list[list[float]] = [[] for _ in editors]
        self._launch = launch
        self._editors = editors

    async def watch(self) -> None:
        while True:
            pids = engines_of(self._launch.socket.parent)
            self.engines.update(pids)
            self.engine += filter(None, map(resident_mb, pids[:1]))
            for editor, samples in zip(self._editors, self.front_ends, strict=True):
                samples += filter(None, [resident_mb(editor.pid)])
            await asyncio.sleep(0.5)


async def _strike(
    launch: Launch, troubles: list[Trouble], pause_s: float, rng: random.Random, struck: list[str]
) -> None:
    number = 0
    while troubles:
        await asyncio.sleep(rng.uniform(0.7, 1.3) * pause_s)
        struck.append(await troubles[number % len(troubles)](launch, rng))
        number += 1


async def killed(launch: Launch, rng: random.Random) -> str:
    """The engine is killed, as by the kernel when memory is short."""
    return _signal(launch, signal.SIGKILL)


async def frozen(launch: Launch, rng: random.Random) -> str:
    """The engine stands still for a while, as when a laptop sleeps or a debugger holds it."""
    told = _signal(launch, signal.SIGSTOP)
    try:
        await asyncio.sleep(rng.uniform(0.2, 1.5))
    finally:
        _signal(launch, signal.SIGCONT)
    return told


async def hidden(launch: Launch, rng: random.Random) -> str:
    """The socket is removed, as by a cleaner of temporary folders."""
    with contextlib.suppress(FileNotFoundError):
        launch.socket.unlink()
    return "the socket was removed"


async def shouted_at(launch: Launch, rng: random.Random) -> str:
    """Somebody sends noise to the socket."""
    streams = await launch.connect()
    if streams is not None:
        streams[1].write(rng.randbytes(rng.randrange(1, 10_000)))
        streams[1].close()
    return "noise was sent"


async def disk_full(launch: Launch, rng: random.Random) -> str:
    """No file of the engine can grow any more, as on a full disk; that stays so until it is replaced."""
    for pid in engines_of(launch.socket.parent):
        with contextlib.suppress(ProcessLookupError):
            _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))
    return "the disk of the engine was full"


TROUBLES: list[Trouble] = [killed, wall_clock.jumped, disk_full, frozen, shouted_at, hidden]


def _signal(launch: Launch, number: signal.Signals) -> str:
    for pid in engines_of(launch.socket.parent):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    return f"the engine was sent {number.name}"
