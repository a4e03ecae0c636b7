"""A clock on the wall that jumps, in the processes that a run starts."""

from __future__ import annotations

import os
import random
from pathlib import Path

from midspan_server.launch import Launch

HOUR_S = 3600.0


def clock_of(launch: Launch) -> Path:
    """Returns the file that says how far the clock is ahead of the true one, in seconds."""
    return launch.log.with_name("clock")


def environment(clock: Path) -> dict[str, str]:
    """Returns the environment of a process that sees a clock; a process that it starts sees it too."""
    paths = [str(Path(__file__).with_name("jumping")), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"SOAK_CLOCK": str(clock), "PYTHONPATH": os.pathsep.join(paths)}


def set_ahead(clock: Path, hours: float) -> None:
    """Makes a clock jump; whoever reads it sees the old time or the new one."""
    clock.parent.mkdir(parents=True, exist_ok=True)
    new = clock.with_suffix(".new")
    new.write_text(str(hours * HOUR_S))
    new.replace(clock)


async def jumped(launch: Launch, rng: random.Random) -> str:
    """The clock on the wall jumps by hours or days, as when a laptop wakes up or finds its network again."""
    hours = rng.choice([-1, 1]) * rng.choice([1, 14, 24 * 400])
    set_ahead(clock_of(launch), hours)
    return f"the clock was set to {hours:+d} h"
