"""A suggestion neither repeats a closing bracket nor leaves one open."""

from __future__ import annotations

import pytest

from filter_case import context_of, reason_of
from midspan_server.filters import sifted
from midspan_server.filters.balance import balance


@pytest.mark.parametrize(
    ("marked", "text", "reason"),
    [
        ("foo(║)", "a)", "closed after the cursor"),
        ("foo(\n    a║\n)\n", ", b)", "closed after the cursor"),
        ("x = 1║", ")", "closes nothing"),
        ("x = [║]", "1]", "closed after the cursor"),
        ("f(a[║])", "0])", "closed after the cursor"),
        ("    bar.s║)\n", "tart()", "closed after the cursor"),
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


def test_other_languages_are_not_read_as_python() -> None:
    assert sifted(") {", context_of("fn f<'a>(x: &'a str║", "rust")) == ") {"
