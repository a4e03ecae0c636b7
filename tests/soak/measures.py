"""What a run is judged by: percentiles, memory, and processes or files that should not be there any more."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec

WARM_UP_S = 60.0
"""At 8 keys a second an editor has typed its whole text by then, so the engine has met every length there is."""
WINDOW_S = 30.0
"""Over so long memory is averaged: it goes up and down with every fill. Chosen."""


class Spread(msgspec.Struct, frozen=True):
    """How numbers spread; zeros where there are none."""

    n: int
    p50: float
    p90: float
    p99: float
    largest: float

    @classmethod
    def of(cls, numbers: list[float]) -> Spread:
        ranked = sorted(numbers) or [0.0]
        p50, p90, p99 = (round(ranked[math.ceil(len(ranked) * share) - 1], 1) for share in (0.5, 0.9, 0.99))
        return cls(len(numbers), p50, p90, p99, round(ranked[-1], 1))


class Growth(msgspec.Struct, frozen=True):
    """Resident memory of a process, MB: its mean over a while after warming up, half-way to the end, and at the end."""

    early: float
    middle: float
    late: float

    @classmethod
    def of(cls, samples: list[float], seconds: float) -> Growth:
        """Takes samples that are spread evenly over a run of so many seconds."""
        a_second = len(samples) / seconds
        start = round(min(WARM_UP_S, seconds / 4) * a_second)
        n = max(1, round(min(WINDOW_S, seconds / 4) * a_second))
        middle = (start + len(samples) - n) // 2
        parts = samples[start : start + n], samples[middle : middle + n], samples[-n:]
        return cls(*(round(sum(part) / max(1, len(part)), 1) for part in parts))

    @property
    def mb(self) -> float:
        return round(self.late - self.early, 1)


def resident_mb(pid: int) -> float | None:
    """Returns the resident memory of a process, None once it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 1e6
    except (OSError, IndexError):
        return None


class Lags(msgspec.Struct, frozen=True):
    """How late each probe of an event loop was, and how long the next one waited before it set out."""

    every_ms: float
    lags_ms: list[float]

    def waits_ms(self) -> list[float]:
        """Returns what probes would have waited that come at a steady rate, whatever became of the one before.

        A loop that stands still for a second holds up one probe of ours; of what others send it holds up all that comes
        in that second, the last of it for a short while only.
        """
        return [lag - self.every_ms * n for lag in self.lags_ms for n in range(1 + int(max(0.0, lag) // self.every_ms))]


def loop_waits_ms(folder: Path) -> list[Spread]:
    """Returns how long something new waited in the loop of each language server that has ended in order."""
    paths = sorted(folder.glob("*.lags.json"))
    return [Spread.of(msgspec.json.decode(path.read_bytes(), type=Lags).waits_ms()) for path in paths]


def engines_of(folder: Path) -> list[int]:
    """Returns the processes of engine hosts whose socket lies in a folder; one that waits to be reaped has ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"midspan_engine" in words and any(word.startswith(bytes(folder)) for word in words):
            found.append(int(path.parent.name))
    return found
