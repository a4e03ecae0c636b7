"""Where the engine is asked, and for what; `║` stands for the cursor."""

from __future__ import annotations

import pytest

from midspan_server.asking import fill_of, reason_not_to_ask, wants_several_lines
from midspan_server.context import Context, context_at
from midspan_server.settings import CONFIDENCE, MAX_TOKENS, Settings, Trigger
from midspan_server.text import snapshot


def context(marked: str, trigger: Trigger = "automatic") -> Context:
    return context_at(snapshot(marked.replace("║", "")), marked.index("║"), trigger)


@pytest.mark.parametrize(
    ("marked", "asks"),
    [("pri║nt", False), ("print║", True), ("x1║_y", False), ("naï║ve", False), ("x = a║ + 1", True)],
)
def test_nothing_is_asked_inside_a_word_unless_invoked(marked: str, asks: bool) -> None:
    assert (reason_not_to_ask(context(marked)) is None) is asks
    assert reason_not_to_ask(context(marked, "invoked")) is None


@pytest.mark.parametrize(
    ("marked", "asks"),
    [
        ("foo(║)", True),
        ("foo('║')", True),
        ("items[║], y", True),
        ("if x ║:", True),
        ("return ║ + 1", True),
        ("x║ = 3", True),
        ("x = ║ if y else z", True),
        ("[║ for x in y]", True),
        ("from x import ║  # why", True),
        ("foo(║bar)", False),
        ("    ║print(x)", False),
        ("║if x:", False),
        ("    ║)", False),
        ("name = ║(1, 2)", False),
        ("print('some ║ words')", False),
    ],
)
def test_amid_a_line_it_is_asked_only_where_something_may_be_missing(marked: str, asks: bool) -> None:
    assert (reason_not_to_ask(context(marked)) is None) is asks


@pytest.mark.parametrize(
    ("marked", "trigger", "several"),
    [
        ("def f():\n    ║\n", "automatic", True),
        ("def f():\n    ║\n\nx = 1\n", "automatic", True),
        ("class A:\n    def f(self):\n        ║\n\n    def g(self):\n        pass\n", "automatic", True),
        ("def f(\n    a,\n    b=1,\n) -> int:\n    ║\n", "automatic", True),
        ("def f(a,\n      b):\n    ║\n", "automatic", True),
        ("if (a and\n        b):\n    ║\n", "automatic", True),
        ("if a and \\\n        b:\n    ║\n", "automatic", True),
        ("def f():\n    # what it does\n    ║\n", "automatic", True),
        ("x = f(a,\n    b)\n    ║\n", "automatic", False),
        ("x = f(a,\n      b[1:\n    ║\n", "automatic", False),
        ("def f():\n    ║\n    return 1\n", "automatic", False),
        ("def f():\n    x = 1\n    ║\n", "automatic", False),
        ("x = {\n    'a':\n    ║\n}\n", "automatic", False),
        ("x = 1\n║\n", "automatic", False),
        ("def f():║\n", "automatic", False),
        ("x = 1\n║\n", "invoked", True),
        ("def f():║\n", "invoked", True),
        ("f(║\n", "invoked", True),
        ("f(║)\n", "invoked", False),
        ("def f():\n    x║\n", "invoked", False),
        ("║", "invoked", True),
    ],
)
def test_several_lines_are_asked_for_in_an_empty_block_or_by_hand(marked: str, trigger: Trigger, several: bool) -> None:
    found = context(marked, trigger)
    assert wants_several_lines(found) is several
    fill = fill_of(found, "file:///a.py", Settings(max_tokens=20))
    assert fill.single_line is not several
    assert fill.max_tokens == (40 if several else 20)
    assert fill.n_candidates == (3 if trigger == "invoked" else 1)
    assert fill.priority == ("several" if trigger == "invoked" else "typed")


def test_what_is_asked_for_outright_counts_more_than_the_line() -> None:
    found, settings = context("x = ║"), Settings(max_tokens=20)
    for multi_line, max_tokens in ((True, 40), (False, 20)):
        fill = fill_of(found, "file:///a.py", settings, multi_line=multi_line)
        assert (fill.single_line, fill.max_tokens) == (not multi_line, max_tokens)


def test_no_gap_is_longer_than_a_canvas_bears() -> None:
    fill = fill_of(context("║", "invoked"), "file:///a.py", Settings(max_tokens=MAX_TOKENS))
    assert fill.max_tokens == MAX_TOKENS


def test_what_was_waited_is_taken_off_the_deadline() -> None:
    settings = Settings(deadline_ms=600)
    assert fill_of(context("x = ║"), "file:///a.py", settings, waited_ms=100).deadline_ms == 500
    assert fill_of(context("x = ║"), "file:///a.py", settings, waited_ms=700).deadline_ms == 1


def test_the_confidence_asked_for_follows_the_user_from_reserved_to_eager() -> None:
    asked = [
        fill_of(context("x = ║"), "file:///a.py", Settings(eagerness=each)).min_confidence
        for each in ("reserved", "balanced", "eager")
    ]
    assert asked == sorted(asked, reverse=True) == list(CONFIDENCE.values())
    by_hand = fill_of(context("x = ║", "invoked"), "file:///a.py", Settings(eagerness="reserved"))
    assert by_hand.min_confidence == CONFIDENCE["eager"]
    assert fill_of(context("x = ║"), "file:///a.py", Settings(min_confidence=0.0)).min_confidence == 0
