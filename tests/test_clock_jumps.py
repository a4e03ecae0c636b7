"""The time of day may jump as it likes: nothing expires early, nothing waits for ever, every answer is the right one.

The clock on the wall jumps at the end of summer, and when a laptop wakes up or finds its network again.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine_host import scenario
from host_process import is_running
from lsp_client import LspClient, inline_params, running
from midspan_server.engine_client import EngineClient
from midspan_server.launch import Launch
from soak import wall_clock

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="only /proc tells what became of somebody else's child"),
]

TEXT = "def area(width, height):\n    return width * height\n\n\ndef volume(width, height, depth):\n    return "
AT = (5, 11)
DAY = 24.0
JUMPS = (14.0, -3 * DAY, 400 * DAY)
"""Hours; farther than any wait of ours lasts, in both directions."""


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for variable, name in (("MIDSPAN_RUNTIME_DIR", "run"), ("XDG_STATE_HOME", "state"), ("XDG_CONFIG_HOME", "config")):
        monkeypatch.setenv(variable, str(tmp_path / name))
    monkeypatch.delenv("MIDSPAN_CHECKPOINT", raising=False)
    clock = wall_clock.clock_of(Launch.resolve())
    for variable, value in wall_clock.environment(clock).items():
        monkeypatch.setenv(variable, value)
    yield clock
    asyncio.run(_stop())


async def _stop() -> None:
    async with EngineClient(Launch.resolve()) as client:
        await client.shutdown_host()


async def ask(client: LspClient, name: str, clock: Path, hours: float) -> list[str]:
    """Asks in a document of its own, which nobody remembers anything of; the clock jumps before the answer."""
    uri = f"file:///{name}.py"
    client.open(TEXT, uri=uri)
    _, answer = client.start("textDocument/inlineCompletion", inline_params(*AT, uri))
    wall_clock.set_ahead(clock, hours)
    items: list[dict[str, Any]] = (await answer)["items"]
    client.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
    return [item["insertText"] for item in items]


def test_a_process_of_a_run_sees_the_time_of_day_jump_while_seconds_go_on(clock: Path) -> None:
    program = """if True:
        import datetime, logging, sys, time
        def look():
            made = logging.makeLogRecord({}).created
            now = datetime.datetime.now().timestamp()
            return time.time(), now, time.mktime(time.localtime()), made, time.monotonic()
        before = look(); print(flush=True); input(); after = look()
        print(*[round((b - a) / 3600, 1) for a, b in zip(before, after)])
    """
    process = subprocess.Popen([sys.executable, "-P", "-c", program], stdin=-1, stdout=-1, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()
    wall_clock.set_ahead(clock, 14.0)
    assert process.communicate("\n")[0].split() == ["14.0"] * 4 + ["0.0"]


@scenario
async def test_every_answer_is_that_of_a_steady_clock_and_engines_stay_and_leave_as_ever(clock: Path) -> None:
    wall_clock.set_ahead(clock, -1000 * DAY)
    async with running() as client, EngineClient(Launch.resolve()) as engine:
        await client.initialize(options={"min_confidence": 0.0, "deadline_ms": 60_000})
        at_first = await ask(client, "first", clock, -1000 * DAY)
        assert at_first
        status = await engine.status()
        assert status is not None
        for number, hours in enumerate(JUMPS):
            assert await ask(client, f"jump{number}", clock, hours) == at_first
            now = await engine.status()
            assert now is not None
            assert now.pid == status.pid, "it was not idle for ten minutes"
            assert now.uptime_s < 10 * 60
            assert set(now.counts) == {"suggested"}, "nothing expired"

        os.kill(status.pid, signal.SIGKILL)  # a lost engine is replaced after a pause, which does not depend on the day
        assert await ask(client, "killed", clock, -400 * DAY) == at_first
        now = await engine.status()
        assert now is not None
        assert now.pid != status.pid
        await engine.set_idle(0.02)
        wall_clock.set_ahead(clock, -800 * DAY)
        while is_running(now.pid):
            await asyncio.sleep(0.05)
        assert await client.leave() == 0
