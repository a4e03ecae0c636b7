"""Answers without a suggestion, and what is remembered of them so that a user can ask why nothing appeared."""

from __future__ import annotations

from collections import Counter, deque
from typing import Literal

import msgspec

from midspan_engine.protocol import EngineStatus, Stats

STATUS = "midspan/status"
"""A notification to the client (`Status`) whenever the state changed, and a request of the client (`StatusReport`)."""

State = Literal["ready", "silent", "off", "failed"]
"""Of the last answer: a suggestion, none, none because of settings or exclusions, none because the engine failed."""

Offer = Literal["suggested", "edited"]
"""How an answer that is no silence is counted: suggestions, or changes of an edit or of holes."""

N_KEPT = 20
"""Enough to see what the last minute of typing met with."""


class Silence(msgspec.Struct, frozen=True):
    """Answers a request with nothing, and says why in plain words."""

    reason: str
    state: State = "silent"


SUPERSEDED = Silence("superseded by a newer request for this document")


def internal_error(error: Exception) -> Silence:
    """Returns what a request is answered with that met with a fault of this server."""
    return Silence(f"internal error: {type(error).__name__}; please report it", "failed")


class Status(msgspec.Struct, frozen=True):
    """Says what the last answer was: the body of a `midspan/status` notification."""

    state: State
    reason: str | None


class Cost(msgspec.Struct, frozen=True):
    """Says what an answer of the engine cost."""

    ms: float
    steps: int
    encoder_steps: int
    carried_steps: int
    """Passes made for the request before it, whose canvas it went on from."""
    decoder_ms: float

    @classmethod
    def of(cls, stats: Stats) -> Cost:
        """Returns what a reader of JSON is told of the engine's figures."""
        return cls(
            round(stats.ms, 1), stats.steps, stats.encoder_steps, stats.carried_steps, round(stats.decoder_ms, 1)
        )


class StatusReport(msgspec.Struct, frozen=True, kw_only=True):
    """Answers a `midspan/status` request."""

    state: State
    reason: str | None
    silences: list[str]
    """The last reasons, oldest first."""
    counts: dict[str, int]
    """Answers by what became of them, and what the client reported of suggestions: shown, accepted, kept."""
    dropped: dict[str, int]
    """What the engine offered and the filters kept back, by reason."""
    confidences: list[float]
    """Of the suggestions offered last, best first."""
    stats: Cost | None
    """Of the engine's last answer."""
    engine: EngineStatus | None
    engine_error: str | None
    """Why the engine cannot be asked."""
    left_alone: dict[str, str]
    """The open documents in which nothing is completed, by URI, and why."""
    n_lent: int | None
    """Other files of the workspace that the engine may look at; None while they are being looked for."""


class SilenceLog:
    """Keeps the last silences and counts answers; it holds no text of any document."""

    def __init__(self) -> None:
        self.status = Status("ready", None)
        self.stats: Stats | None = None
        self.confidences: tuple[float, ...] = ()
        self.last: deque[Silence] = deque(maxlen=N_KEPT)
        self.counts: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()

    def note(self, silence: Silence | None, offer: Offer = "suggested") -> bool:
        """Notes an answer, None for one that offers something; says whether the status changed.

        Superseded requests are counted only: they come with every key, and the newer request tells more.
        """
        before = self.status
        if silence is SUPERSEDED:
            self.counts["superseded"] += 1
        elif silence is None:
            self.counts[offer] += 1
            self.status = Status("ready", None)
        else:
            self.counts[silence.state] += 1
            self.last.append(silence)
            self.status = Status(silence.state, silence.reason)
        return self.status != before

    def report(
        self, engine: EngineStatus | None, engine_error: str | None, left_alone: dict[str, str], n_lent: int | None
    ) -> StatusReport:
        """Returns all of it, with what is known of the engine and of documents that are left alone."""
        return StatusReport(
            state=self.status.state,
            reason=self.status.reason,
            silences=[silence.reason for silence in self.last],
            counts=dict(self.counts),
            dropped=dict(self.dropped),
            confidences=[round(each, 3) for each in self.confidences],
            stats=None if self.stats is None else Cost.of(self.stats),
            engine=engine,
            engine_error=engine_error,
            left_alone=left_alone,
            n_lent=n_lent,
        )
