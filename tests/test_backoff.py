"""An engine that dies again and again is started ever less often, and everybody hears why meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from engine_host import scenario
from midspan_engine.errors import EngineUnavailable
from midspan_server.backoff import MAX_BACKOFF_S, Backoff


def is_admitted(backoff: Backoff) -> bool:
    try:
        backoff.admit()
    except EngineUnavailable as error:
        return not str(error).startswith("the engine ran out of memory; trying again in ")
    return True


@scenario
async def test_two_starts_are_free_and_the_pauses_behind_them_grow_up_to_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    backoff = Backoff()
    backoff.fail("the engine ran out of memory")
    pauses = []
    for _ in range(9):
        began = now
        while not is_admitted(backoff):
            now += 1.0
        pauses.append(now - began)
    assert pauses == [0, 0, 2, 4, 8, 16, 32, MAX_BACKOFF_S, MAX_BACKOFF_S]


@scenario
async def test_a_pause_counts_from_the_end_of_a_start_in_vain_however_long_it_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    backoff = Backoff()
    backoff.admit()
    backoff.admit()
    now += 30.0
    backoff.fail("the engine ran out of memory")
    assert not is_admitted(backoff)
    now += 2.0
    assert is_admitted(backoff)
