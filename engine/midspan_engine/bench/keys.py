"""How long it takes from a key to the suggestion, through a real `midspan lsp` and the engine that it starts.

Everything is offered, however doubtful or late: what is withheld or cut off ends early and would flatter the figures.
The server's own wait for the next key, up to 150 ms while somebody types fast, is left out.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from midspan_engine.evaluation.cases import Case
from midspan_engine.evaluation.language_server import LanguageServer
from midspan_engine.evaluation.scores import percentile

N_COLD = 3
"""Starts of server and engine; each takes seconds."""
N_WARM = 40
"""Gaps that are typed at, six fills each: half a minute."""
_SETTINGS = {"min_confidence": 0.0, "deadline_ms": 60_000}
_ABOVE = 800
"""Characters above the cursor at which a line is inserted: within what the embedded checkpoint reads."""
_TOO_SHORT = 2
"""Characters of a suggestion of which nothing is left to suggest once one is typed."""


class KeyTiming(msgspec.Struct, frozen=True):
    """How long it takes from a key to its suggestion."""

    n: int
    """Suggestions measured; silences are left out."""
    p50_ms: float
    p90_ms: float

    @classmethod
    def of(cls, ms: Sequence[float]) -> KeyTiming:
        """Returns the figures of some keys, zeros for none."""
        return cls(len(ms), statistics.median(ms or [0.0]), percentile(ms, 0.9))


def measure_keys(
    checkpoint: Path, cases: Sequence[Case], progress: Callable[[Sequence[Case]], Iterable[Case]]
) -> dict[str, KeyTiming]:
    """Returns the timings by situation, in the order in which a session meets them."""
    times: dict[str, list[float]] = {
        name: [] for name in ("cold start", "warm prefix", "typed through", "after an edit above", "carried on")
    }
    for case in cases[:N_COLD]:
        with LanguageServer.running(checkpoint, _SETTINGS, is_awake=False) as server:
            server.open(case.prefix + case.suffix)
            times["cold start"] += _timed(server, len(case.prefix), "")[1]
    with LanguageServer.running(checkpoint, _SETTINGS) as server:
        for case in progress(cases[:N_WARM]):
            for name, ms in _of_case(server, case).items():
                times[name] += ms
    return {name: KeyTiming.of(ms) for name, ms in times.items()}


def _of_case(server: LanguageServer, case: Case) -> dict[str, list[float]]:
    """Returns what was measured at one gap; empty where it was answered in another way than was to be measured."""
    measured: dict[str, list[float]] = {}
    cursor, line = len(case.prefix), case.prefix.rfind("\n") + 1
    typed = case.prefix[line:]

    _warm(server, case, line)
    offered, warm = _timed(server, line, typed)
    if not warm:
        return {}
    measured["warm prefix"] = warm
    if len(offered) > _TOO_SHORT:
        _, measured["typed through"] = _timed(server, cursor, offered[0], is_recalled=True)

    _warm(server, case, line)
    above = case.prefix.rfind("\n", 0, max(1, line - _ABOVE)) + 1
    server.insert(above, "limit = 3\n")
    _, measured["after an edit above"] = _timed(server, line + len("limit = 3\n"), typed)

    if len(offered) > _TOO_SHORT:
        _warm(server, case, line)
        server.insert(line, typed)
        server.ask(cursor)
        time.sleep(warm[0] / 2e3)  # the canvas is on its way
        _, ms = _timed(server, cursor, offered[0])
        measured["carried on"] = ms if server.counts()["carried_steps"] else []
    return measured


def _warm(server: LanguageServer, case: Case, line: int) -> None:
    """Opens a case without what stands on the cursor's line, and has the engine read it."""
    server.open(case.prefix[:line] + case.suffix)
    server.complete(line)


def _timed(server: LanguageServer, at: int, text: str, *, is_recalled: bool = False) -> tuple[str, list[float]]:
    """Types and returns what is suggested, and the milliseconds; none for silence or an answer from elsewhere."""
    n_recalled = server.counts()["recalled"]
    began = time.perf_counter()
    if text:
        server.insert(at, text)
    offer = server.complete(at + len(text))
    ms = (time.perf_counter() - began) * 1e3
    is_meant = (server.counts()["recalled"] > n_recalled) == is_recalled
    return offer.text, [ms] if offer.text and is_meant else []
