"""How long a request is held back, told by the keys before it; times in seconds."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from completion_bench import bench, texts
from engine_host import offer, scenario
from midspan_server.debounce import INTERVALS, MAX_S, PAUSE_S, Debounce


def after_keys(client: str, interval: float, n: int = 10, at: float = 100.0) -> tuple[Debounce, float]:
    """Returns what follows `n` keys, and when the client asks: once it has waited itself."""
    made = Debounce(client)
    for k in range(n):
        made.note_key(at + k * interval)
    waits = {"Visual Studio Code": 0.05, "Neovim": 0.2}.get(client, 0.0)
    return made, at + (n - 1) * interval + waits


@pytest.mark.parametrize(("client", "waited"), [("Visual Studio Code", 0.05), ("an editor", 0.0)])
def test_a_burst_is_held_back_for_the_next_key_less_what_the_client_waited(client: str, waited: float) -> None:
    made, now = after_keys(client, 0.1)
    assert made.wait_s(now) == pytest.approx(INTERVALS * 0.1 - waited)


def test_what_the_client_waits_counts_where_key_and_request_come_together() -> None:
    made, now = after_keys("Visual Studio Code", 0.1)
    assert made.wait_s(now - 0.05) == pytest.approx(INTERVALS * 0.1 - 0.05)


def test_who_has_waited_longer_than_the_next_key_takes_waits_no_more() -> None:
    made, now = after_keys("Neovim", 0.125)
    assert made.wait_s(now) == 0


@pytest.mark.parametrize("interval", [MAX_S, 0.4, PAUSE_S - 0.01])
def test_slow_typists_are_never_held_back(interval: float) -> None:
    made, now = after_keys("an editor", interval)
    assert made.wait_s(now) == 0


def test_the_first_key_after_a_pause_is_answered_at_once() -> None:
    made, now = after_keys("an editor", 0.1)
    made.note_key(now + PAUSE_S)
    assert made.wait_s(now + PAUSE_S) == 0
    assert Debounce().wait_s(5.0) == 0


def test_the_wait_follows_the_typist() -> None:
    made, now = after_keys("an editor", 0.05)
    before = made.wait_s(now)
    for _ in range(10):
        now += 0.1
        made.note_key(now)
    assert before < made.wait_s(now) <= MAX_S


@scenario
async def test_of_a_burst_only_the_last_request_reaches_the_engine(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        b.host.answer = offer("1")
        at = b.open("x║")
        asked = []
        now = asyncio.get_running_loop().time()
        for n in range(10):  # ten keys in the last half second
            b.completer.debounce.note_key(now - (9 - n) * 0.05)
        for version, letter in enumerate(" = ab", 2):
            at = b.type(letter, at, version)
            asked.append(asyncio.create_task(b.ask(at)))
            await asyncio.sleep(0)
        assert texts(await asked[-1]) == ["1"]
        await asyncio.gather(*asked)
        assert [fill.parts[0] for fill in b.host.fills if fill.priority == "typed"] == ["x = ab"]
        assert b.host.fills[0].deadline_ms is not None
        assert b.host.fills[0].deadline_ms < b.completer.loaded.settings.deadline_ms
