"""What a key costs in a large file: far less than reading the file, whatever its size."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from statistics import median

import pytest

from completion_bench import URI, Bench, bench, reason
from engine_host import offer, scenario
from midspan_server.context import MAX_LINE
from midspan_server.suggestion import Suggestions
from midspan_server.text import MAX_CHARACTERS, Edit, Position, snapshot

LINE = "total_of_all = 1  # é\n"
SUGGESTION = "abcdefghijklm"


async def key_costs(b: Bench, n_characters: int, typed: str) -> list[float]:
    """Returns the processor seconds of each key typed in the middle of a file of that size, its answer included."""
    half = LINE * (n_characters // len(LINE) // 2)
    b.host.answer = offer(SUGGESTION)
    at = b.open(f"{half}y = ║\n{half}")
    await b.ask(at)
    costs = []
    for version, letter in enumerate(typed):
        began = time.process_time()
        at = b.type(letter, at, version)
        assert isinstance(await b.ask(at), Suggestions)
        costs.append(time.process_time() - began)
    return costs


@pytest.mark.parametrize(
    ("typed", "n_asked"), [(SUGGESTION[:-1], 1), ("zyxwvutsrqp", 12)], ids=["along a suggestion", "to the engine"]
)
@scenario
async def test_a_key_in_a_file_of_a_megabyte_costs_a_fraction_of_reading_the_file(
    tmp_path: Path, typed: str, n_asked: int
) -> None:
    async with bench(tmp_path) as b:
        costs = await key_costs(b, 1_000_000, typed)
        assert b.n_asked == n_asked
        text = b.completer.documents[URI].snapshot.text
    reading = []
    for _ in range(5):
        began = time.process_time()
        snapshot(text)
        reading.append(time.process_time() - began)
    print(f"a key: {median(costs) * 1e3:.2f} ms, reading the file: {median(reading) * 1e3:.2f} ms")
    assert median(costs) < median(reading) / 2


@pytest.mark.parametrize("size", ["file", "line"])
@scenario
async def test_beyond_the_limits_a_request_costs_next_to_nothing(tmp_path: Path, size: str) -> None:
    async with bench(tmp_path) as b:
        line = "x" * (10 * MAX_LINE if size == "line" else 70) + "\n"
        n_lines = 2 * MAX_CHARACTERS // len(line) if size == "file" else 1
        b.open(line * n_lines + "║")
        document = b.completer.documents[URI]
        reading, asking = [], []
        for version in range(5):
            began = time.perf_counter()
            snapshot(document.snapshot.text)
            reading.append(time.perf_counter() - began)
            began = time.perf_counter()
            assert "nothing is completed" in reason(await b.ask(Position(0, 3)))
            asking.append(time.perf_counter() - began)
            document.change([Edit("y", Position(0, 3), Position(0, 3))], version)
        assert b.host.fills == []
        if size == "file":
            assert min(asking) < min(reading) / 20
        await asyncio.sleep(0)
