"""The filters: `║` stands for the cursor, the second column is what the engine offers."""

from __future__ import annotations

import pytest

from midspan_server.context import context_at
from midspan_server.filters import reason_to_drop
from midspan_server.text import snapshot


def judged(marked: str, text: str) -> str | None:
    return reason_to_drop(text, context_at(snapshot(marked.replace("║", "")), marked.index("║"), "automatic"))


@pytest.mark.parametrize(
    ("marked", "text", "reason"),
    [
        ("x = ║", "  \n ", "blank"),
        ("x = ║foo(1)", "foo(1)", "repeats"),
        ("def f():\n    ║\n    return x\n", "return x", "repeats"),
        ("def f():\n    ║\n\n    a = 1\n    b = 2\n", "a = 1\n    b = 2", "repeats"),
        ("foo(║)", "a)", "closed after the cursor"),
        ("foo(\n    a║\n)\n", ", b)", "closed after the cursor"),
        ("x = 1║", ")", "closes nothing"),
        ("x = [║]", "1]", "closed after the cursor"),
        ("f(a[║])", "0])", "closed after the cursor"),
        ("x = ║", "{", "nothing closes"),
        ("x = f(║)", "g(a", "nothing closes"),
        ("x = ║\ny = (1)\n", "f(a", "nothing closes"),
    ],
)
def test_what_a_user_would_have_to_clean_up_is_dropped(marked: str, text: str, reason: str) -> None:
    found = judged(marked, text)
    assert found is not None
    assert reason in found


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
        ("x = ║\nx = 1\n", "x"),
        ("x = {║\n", '"a": 1}'),
        ("def f():\n    ║\n    return x\n", "x = 1"),
        ('"""(\n"""\nfoo(║\n', "1)"),
        (") cut start\ndef f():\n    g(║\n", "x)"),
        ("print('(', x║\n", ")"),
    ],
)
def test_what_is_wanted_is_kept(marked: str, text: str) -> None:
    assert judged(marked, text) is None
