"""From attempts to figures: exact match, similarity and validity, over all answers and over those that are shown."""

from __future__ import annotations

import ast
import difflib
import math
import statistics
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from midspan_engine.evaluation.cases import Case
from midspan_engine.evaluation.methods import Attempt
from midspan_engine.evaluation.report import Figures

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


def judge(case: Case, attempt: Attempt) -> Scored:
    """Compares an attempt with the truth (trailing blanks aside) and parses the whole file with it in place."""
    text, truth = attempt.text.rstrip(), case.truth.rstrip()
    return Scored(
        kind=case.kind,
        is_exact=text == truth,
        similarity=difflib.SequenceMatcher(None, text, truth, autojunk=False).ratio(),
        is_valid=bool(text) and _parses(case.prefix + attempt.text + case.suffix),
        confidence=attempt.confidence if text else 0.0,
        ms=attempt.ms,
        steps=attempt.steps,
    )


def _parses(source: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's strings
            ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def interval(successes: int, n: int) -> tuple[float, float]:
    """Returns Wilson's 95 % interval of a share."""
    if n == 0:
        return 0.0, 1.0
    p, z2 = successes / n, _Z95**2
    middle = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z95 * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return max(0.0, middle - half), min(1.0, middle + half)


def summarise(scored: Sequence[Scored], min_confidence: float) -> Figures:
    """Returns the figures of one method: over all answers, and over those at or above `min_confidence`."""
    shown = [one for one in scored if one.confidence >= min_confidence]
    of_kind = {kind: [one for one in scored if one.kind == kind] for kind in sorted({one.kind for one in scored})}
    return Figures(
        n=len(scored),
        exact=_mean(one.is_exact for one in scored),
        exact_interval=interval(sum(one.is_exact for one in scored), len(scored)),
        similarity=_mean(one.similarity for one in scored),
        valid=_mean(one.is_valid for one in scored),
        shown=len(shown) / max(1, len(scored)),
        shown_exact=_mean(one.is_exact for one in shown),
        shown_valid=_mean(one.is_valid for one in shown),
        steps=_mean(one.steps for one in scored),
        p50_ms=statistics.median(one.ms for one in scored) if scored else 0.0,
        by_kind={kind: _mean(one.is_exact for one in members) for kind, members in of_kind.items()},
    )


def _mean(values: Iterable[float]) -> float:
    """Returns the mean; 0 of nothing."""
    held = list(values)
    return sum(held) / max(1, len(held))
