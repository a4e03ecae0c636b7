"""Fills cases with several methods, case by case, so that a busy moment of the machine hits all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from midspan_engine.evaluation.cases import Case
from midspan_engine.evaluation.methods import Method
from midspan_engine.evaluation.report import Figures
from midspan_engine.evaluation.scores import Scored, judge, summarise

Progress = Callable[[Sequence[Case]], Iterable[Case]]


def compare(
    cases: Sequence[Case],
    methods: Mapping[str, Method],
    n_tokens: Callable[[str], int],
    min_confidence: float,
    progress: Progress = iter,
) -> tuple[dict[str, Figures], dict[str, Figures]]:
    """Returns the figures of each method on the one-line cases and on the others; nothing where there are none.

    `n_tokens` measures the true text of a gap, for the figures by length.
    """
    scored: dict[bool, dict[str, list[Scored]]] = {is_one_line: {} for is_one_line in (True, False)}
    for case in progress(cases):
        for name, method in methods.items():
            found = judge(case, method(case), n_tokens(case.truth))
            scored[case.is_one_line].setdefault(name, []).append(found)
    one_line, multi_line = (
        {name: summarise(members, min_confidence) for name, members in group.items()} for group in scored.values()
    )
    return one_line, multi_line
