"""A suggestion neither repeats a closing bracket nor leaves one open."""

from __future__ import annotations

import pytest

from filter_case import context_of, reason_of
from midspan_server.filters import Dropped, sifted
from midspan_server.filters.balance import balance


@pytest.mark.parametrize(
    ("marked", "text", "reason"),
    [
        ("foo(║)", ")", "closed after the cursor"),
        ("foo(║)", "a), b", "closed after the cursor"),
        ("foo(║)", "a), bar(b)", "closed after the cursor"),
        ("x = 1║", ")", "closes nothing"),
        ("x = 1║", " + 2)", "closes nothing"),
        ("x = ║", "{", "nothing closes"),
        ("x = f(║)", "g(a", "nothing closes"),
        ("x = ║\ny = (1)\n", "f(a", "nothing closes"),
    ],
)
def test_a_bracket_too_many_is_dropped(marked: str, text: str, reason: str) -> None:
    assert reason in str(reason_of(balance, marked, text))


@pytest.mark.parametrize(
    ("marked", "text"),
    [
        ("foo(║", "a)"),
        ("x = f(║))", "g(a"),
        ("x = ║\n    1,\n]\n", "["),
        ("foo(bar(║)", "a)"),
        ("foo(║)", "a, bar(b)"),
        ("foo(║)", "':)'"),
        ("foo(':║')", ")"),
        ("x = {║\n", '"a": 1}'),
        ('"""(\n"""\nfoo(║\n', "1)"),
        (") cut start\ndef f():\n    g(║\n", "x)"),
        ("print('(', x║\n", ")"),
        ("print('\\'(', x║\n", ")"),
    ],
)
def test_what_is_wanted_is_kept(marked: str, text: str) -> None:
    assert reason_of(balance, marked, text) is None


@pytest.mark.parametrize(
    ("marked", "text", "kept"),
    [
        ("    return len(║)\n", "path)", "path"),
        ("foo(║)", "a )", "a"),
        ("foo(║)", "bar(a))", "bar(a)"),
        ("foo(║)", "a))", "a"),
        ("foo(║) + bar(b)", "a)", "a"),
        ("foo(\n    a║\n)\n", ", b)", ", b"),
        ("x = [║]", "1]", "1"),
        ("f(a[║])", "0])", "0"),
        ("if f(║):\n", "rest):", "rest"),
        ("    return len(║)\n", "path):", "path"),
        ("foo(║)", "a)  # )", "a"),
        ("x = {\n    'a': [1, ║],\n}\n", "2],\n}", "2"),
        ("    bar.s║)\n", "tart()", "tart("),
    ],
)
def test_a_closer_that_only_repeats_what_follows_is_cut_off(marked: str, text: str, kept: str) -> None:
    assert balance(text, context_of(marked)) == kept
    assert sifted(text, context_of(marked)) == kept


def test_what_is_left_without_the_closer_is_judged_like_any_other() -> None:
    for marked, text in (("foo(║, b)", "a,)"), ("foo(║bar)", "bar)"), ("foo(║, b)", "a, b)")):
        verdict = sifted(text, context_of(marked))
        assert isinstance(verdict, Dropped)
        assert "repeats" in verdict.reason


def test_other_languages_are_not_read_as_python() -> None:
    assert sifted(") {", context_of("fn f<'a>(x: &'a str║", "rust")) == ") {"
