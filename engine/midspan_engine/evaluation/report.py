"""What `midspan eval --json` prints: one schema for all suites."""

from __future__ import annotations

import msgspec

LENGTHS = {"<= 8": 8, "9-12": 12, "13-16": 16, "17-24": 24, "25+": 10**9}
"""Buckets of the true length of a gap, by the most tokens of the checkpoint that it takes."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one method; shares are of all answers, those that begin with `shown_` of the shown ones."""

    n: int
    exact: float
    similarity: float
    """Mean edit similarity, 0..1."""
    valid: float
    """The whole file parses with the answer in place; an empty answer does not count."""
    shown: float
    shown_exact: float
    shown_right: float
    """Exact, or exact in its first line."""
    shown_valid: float
    """Of what a user would accept without checking."""
    quarter_right: float
    """`shown_right` if the most confident quarter of all answers were shown: compares methods whose confidences mean
    different things."""
    exact_early: float | None = None
    """`exact` of what there was 150 ms after the key; None where that is not known."""
    passed: float | None = None
    """Whose tests pass (pass@1); None without tests."""
    passed_early: float | None = None
    """The same of what there was 150 ms after the key."""
    steps: float
    """Mean passes of the model: denoising steps, or tokens of a method that writes one at a time; 0 where unknown."""
    p50_ms: float
    p90_ms: float
    p50_step_ms: float
    """Median milliseconds of one step; 0 where unknown."""
    intervals: dict[str, tuple[float, float]] = {}
    """Wilson's 95 % intervals of the shares, by their names here."""
    by_kind: dict[str, Figures] = {}
    by_length: dict[str, Figures] = {}
    """By the true length in tokens, see LENGTHS."""


class Accept(msgspec.Struct, frozen=True):
    """One accepted suggestion."""

    how: str
    """"whole", "line" or "words"."""
    saved: int
    """Keys that were not pressed, those for accepting taken off."""
    ms: float
    """How long its answer took."""


class Region(msgspec.Struct, frozen=True, kw_only=True):
    """One stretch of a file that was typed."""

    name: str
    keys: int
    """Keys that it takes by hand."""
    accepts: tuple[Accept, ...]


class Typing(msgspec.Struct, frozen=True, kw_only=True):
    """What came of typing regions of files; `midspan_engine.evaluation.keystrokes` defines the words."""

    keys: int
    saved: float
    """Share of the keys."""
    saved_interval: tuple[float, float]
    """95 %, resampling regions."""
    saved_in_time: float
    """The same if an answer later than `in_time_ms` does not count."""
    in_time_ms: float
    requests: int
    shown: int
    """Suggestions, each counted once however long it stays."""
    accepted: int
    precision: float
    """Accepted of shown."""
    precision_interval: tuple[float, float]
    p50_ms: float
    p90_ms: float
    regions: tuple[Region, ...]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a suite."""

    suite: str
    length: str
    """Whether the methods are told the true length of a gap: "unknown", unless a method's name says otherwise."""
    min_confidence: float
    """From which confidence an answer counts as shown."""
    seed: int
    methods: dict[str, Figures] = {}
    """Of the suite's gaps; of its one-line gaps where it has others too."""
    multi_line: dict[str, Figures] = {}
    """Of gaps of several lines, asked for as such."""
    typing: Typing | None = None
    notes: tuple[str, ...] = ()
    """What was left out, and why."""
