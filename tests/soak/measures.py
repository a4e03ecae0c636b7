"""What a run is judged by: percentiles, memory, and processes or files that should not be there any more."""

from __future__ import annotations

import json
import math
from pathlib import Path

import msgspec


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
    """Resident memory over time, MB: the mean of the second quarter of a run against that of the last."""

    early: float
    late: float

    @classmethod
    def of(cls, samples: list[float]) -> Growth:
        quarter = max(1, len(samples) // 4)
        early, late = samples[quarter : 2 * quarter] or samples[:1], samples[-quarter:]
        return cls(*(round(sum(part) / max(1, len(part)), 1) for part in (early, late)))


def resident_mb(pid: int) -> float | None:
    """Returns the resident memory of a process, None once it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 1e6
    except (OSError, IndexError):
        return None


def lags_ms(folder: Path) -> list[float]:
    """Returns how late the loops of the ended language servers were."""
    return [lag for path in sorted(folder.glob("*.lag.json")) for lag in json.loads(path.read_text())]


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
