"""Samples for readers: gaps of held-out files as they fall, what was shown for them and what was true.

Nothing is selected: the seed alone decides which gaps there are, and good and bad answers stand as they came.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from midspan_engine.evaluation.cases import Case
from midspan_engine.evaluation.methods import Method
from midspan_engine.evaluation.scores import judge

_SIDE = 60
"""Characters of the line that are shown on each side of a gap."""


class Sample(msgspec.Struct, frozen=True):
    """One gap and what was made of it."""

    name: str
    kind: str
    before: str
    """The line up to the gap, its end where it is long."""
    after: str
    text: str
    confidence: float
    truth: str
    is_exact: bool
    """Trailing blanks aside, as the suites count it."""


def draw_samples(cases: Iterable[Case], method: Method) -> list[Sample]:
    """Fills cases and returns them with their answers, in their order."""
    found = []
    for case in cases:
        attempt = method(case)
        before = case.prefix[case.prefix.rfind("\n") + 1 :][-_SIDE:]
        after = case.suffix.split("\n", 1)[0][:_SIDE]
        judged = judge(case, attempt)
        found.append(
            Sample(case.name, case.kind, before, after, attempt.text, judged.confidence, case.truth, judged.is_exact)
        )
    return found


def as_markdown(samples: Sequence[Sample], min_confidence: float, seed: int) -> str:
    """Returns the samples as a page; answers below the confidence from which they are shown are marked."""
    n_shown = sum(sample.confidence >= min_confidence for sample in samples)
    n_exact = sum(sample.is_exact for sample in samples)
    head = (
        "# Samples",
        "",
        f"{len(samples)} gaps of held-out packages, drawn by seed {seed} and not selected. {n_exact} answers are "
        f"exact; {n_shown} are shown in an editor, those with a confidence of at least {min_confidence:g}.",
        "The other files of a package were at hand. `┃` marks the gap in its line; the name ends in the character",
        "at which it begins.",
    )
    return "\n".join((*head, *(_section(sample, min_confidence) for sample in samples)))


def _section(sample: Sample, min_confidence: float) -> str:
    verdict = "exact" if sample.is_exact else "wrong"
    silence = "" if sample.confidence >= min_confidence else ", not shown"
    line = f"{sample.before}┃{sample.after}"
    return f"""
## {sample.name} ({sample.kind.replace("_", " ")})

{_code(line)}
answered, {verdict}, confidence {sample.confidence:.2f}{silence}:
{_code(sample.text)}
true:
{_code(sample.truth)}"""


def _code(text: str) -> str:
    """Returns a block of code; its fence is longer than any run of backticks inside."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"\n{fence}python\n{text}\n{fence}\n"
