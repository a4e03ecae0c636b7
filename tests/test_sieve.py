"""What is left of an engine's candidates behind the filters, on the command line as in editors."""

from __future__ import annotations

from engine_host import offer
from filter_case import context_of
from midspan_engine.protocol import Fill, Filled
from midspan_server.sieve import passing


def filled(*texts: str) -> Filled:
    return offer(*texts)(Fill(id=1, document="a.py", parts=("", "")))


def test_candidates_are_mended_and_those_that_become_alike_are_one() -> None:
    answer = passing(filled("path)", "path", ")", "x"), context_of("len(║)"))
    assert [candidate.text for candidate in answer.candidates] == ["path", "x"]
    assert answer.silence is None


def test_the_reason_of_the_best_is_told_where_none_is_left() -> None:
    answer = passing(filled("f(", ")"), context_of("len(║)"))
    assert (answer.candidates, answer.silence) == ((), "the suggestion opens a ( that nothing closes")
    assert passing(Filled(id=1, silence="no"), context_of("len(║)")).silence == "no"
