"""From attempts to figures: over all answers, over those that are shown, and by kind and length of the gap."""

from __future__ import annotations

import difflib
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from midspan_engine.evaluation.cases import Case
from midspan_engine.evaluation.methods import Attempt
from midspan_engine.evaluation.report import LENGTHS, Figures
from midspan_engine.evaluation.sandbox import runs_through
from midspan_engine.evaluation.syntax import parse

_Z95 = 1.96
"""Normal quantile of a 95 % interval."""


@dataclass(frozen=True, slots=True)
class Scored:
    """One attempt, judged."""

    kind: str
    is_exact: bool
    similarity: float
    is_valid: bool
    confidence: float
    ms: float
    steps: int
    n_tokens: int = 0
    """True length of the gap; 0 where nobody counted."""
    is_right: bool = False
    """Exact, or exact in its first line."""
    is_exact_early: bool | None = None
    passes: bool | None = None
    passes_early: bool | None = None


def judge(case: Case, attempt: Attempt, n_tokens: int = 0) -> Scored:
    """Compares an attempt with the truth (trailing blanks aside), parses the whole file and runs its tests, if any."""
    text, truth = attempt.text.rstrip(), case.truth.rstrip()
    early = attempt.early_text
    passes = passes_early = None
    if case.tests:
        passes = _passes(case, attempt.text)
        if early is not None:
            passes_early = passes if early == attempt.text else _passes(case, early)
    return Scored(
        kind=case.kind,
        is_exact=text == truth,
        similarity=difflib.SequenceMatcher(None, text, truth, autojunk=False).ratio(),
        is_valid=bool(text) and parse(case.prefix + attempt.text + case.suffix) is not None,
        confidence=attempt.confidence if text else 0.0,
        ms=attempt.ms,
        steps=attempt.steps,
        n_tokens=n_tokens,
        is_right=text == truth or _first_line(text) == _first_line(truth) != "",
        is_exact_early=None if early is None else early.rstrip() == truth,
        passes=passes,
        passes_early=passes_early,
    )


def _passes(case: Case, text: str) -> bool:
    return runs_through(case.prefix + text + case.suffix + case.tests)


def _first_line(text: str) -> str:
    return text.split("\n", 1)[0].rstrip()


def interval(successes: int, n: int) -> tuple[float, float]:
    """Returns Wilson's 95 % interval of a share."""
    if n == 0:
        return 0.0, 1.0
    p, z2 = successes / n, _Z95**2
    middle = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z95 * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return max(0.0, middle - half), min(1.0, middle + half)


def percentile(values: Sequence[float], share: float) -> float:
    """Returns the smallest value that at least a share of all values do not exceed; 0 of nothing."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)] if values else 0.0


def summarise(scored: Sequence[Scored], min_confidence: float) -> Figures:
    """Returns the figures of one method, those at or above `min_confidence` being shown; by kind and length too."""
    return msgspec.structs.replace(
        _figures(scored, min_confidence),
        by_kind=_split(scored, min_confidence, lambda one: one.kind),
        by_length=_split([one for one in scored if one.n_tokens], min_confidence, lambda one: bucket(one.n_tokens)),
    )


def bucket(n_tokens: int) -> str:
    """Returns the bucket of a length."""
    return next(name for name, most in LENGTHS.items() if n_tokens <= most)


def _split(scored: Sequence[Scored], min_confidence: float, key: Callable[[Scored], str]) -> dict[str, Figures]:
    groups: dict[str, list[Scored]] = {}
    for one in scored:
        groups.setdefault(key(one), []).append(one)
    order = [*LENGTHS, *sorted(groups.keys() - LENGTHS)]
    return {name: _figures(groups[name], min_confidence) for name in order if name in groups}


def _figures(scored: Sequence[Scored], min_confidence: float) -> Figures:
    shown = [one for one in scored if one.confidence >= min_confidence]
    surest = sorted(scored, key=lambda one: -one.confidence)[: math.ceil(len(scored) / 4)]
    judged: dict[str, Sequence[bool | None]] = {
        "exact": [one.is_exact for one in scored],
        "valid": [one.is_valid for one in scored],
        "shown": [one.confidence >= min_confidence for one in scored],
        "shown_exact": [one.is_exact for one in shown],
        "shown_right": [one.is_right for one in shown],
        "shown_valid": [one.is_valid for one in shown],
        "quarter_right": [one.is_right for one in surest],
        "exact_early": [one.is_exact_early for one in scored],
        "passed": [one.passes for one in scored],
        "passed_early": [one.passes_early for one in scored],
    }
    known = {name: [bool(one) for one in members] for name, members in judged.items() if None not in members}
    return Figures(
        n=len(scored),
        similarity=_mean(one.similarity for one in scored),
        steps=_mean(one.steps for one in scored),
        p50_ms=statistics.median(one.ms for one in scored) if scored else 0.0,
        p90_ms=percentile([one.ms for one in scored], 0.9),
        p50_step_ms=statistics.median([one.ms / one.steps for one in scored if one.steps] or [0.0]),
        intervals={name: interval(sum(members), len(members)) for name, members in known.items()},
        **{name: _mean(members) for name, members in known.items()},  # type: ignore[arg-type]
    )


def _mean(values: Iterable[float]) -> float:
    """Returns the mean; 0 of nothing."""
    held = list(values)
    return sum(held) / max(1, len(held))
