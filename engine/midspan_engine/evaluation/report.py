"""What `midspan eval --json` prints: the figures of each method."""

from __future__ import annotations

import msgspec


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one method; shares are of all answers, those that begin with `shown_` of the shown ones."""

    n: int
    exact: float
    exact_interval: tuple[float, float]
    """Wilson's 95 % interval of `exact`."""
    similarity: float
    valid: float
    shown: float
    shown_exact: float
    shown_valid: float
    steps: float
    """Mean denoising steps; tokens for a method that writes one at a time."""
    p50_ms: float
    by_kind: dict[str, float]
    """`exact` by kind of gap."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a suite."""

    suite: str
    length: str
    """Whether the methods are told the true length of a gap: "unknown"."""
    min_confidence: float
    """From which confidence an answer counts as shown."""
    seed: int
    methods: dict[str, Figures]
