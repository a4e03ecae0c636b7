"""A suggestion does not go round in circles."""

from __future__ import annotations

import pytest

from filter_case import context_of, reason_of
from midspan_server.filters.repetition import repetition


@pytest.mark.parametrize(
    ("marked", "text", "reason"),
    [
        ("x = ║", "self.self.self.self.self.self.x", "repeats itself"),
        ("def f():\n    save(x)\n    ║\n", "save(x)", "the lines above"),
        ("def f():\n    save(x)\n    sa║\n", "ve(x)", "the lines above"),
        ("def f():\n    one = 1\n    two = 2\n    ║\n", "one = 1\n    two = 2", "the lines above"),
    ],
)
def test_a_loop_or_a_copy_of_the_lines_above_is_dropped(marked: str, text: str, reason: str) -> None:
    assert reason in str(reason_of(repetition, marked, text))


@pytest.mark.parametrize(
    ("marked", "text"),
    [
        ("x = ║", "[0, 0, 0, 0, 0, 0, 0, 0]"),
        ("x = ║", '"-----------------------"'),
        ("def f():\n    a = 1\n    b = 2\n    ║\n", "a = 1"),
        ("x = [\n    (\n        1,\n    ║\n", ")"),
        ("if a:\n    pass\nif b:\n    ║\n", "pass"),
    ],
)
def test_an_honest_repetition_is_kept(marked: str, text: str) -> None:
    assert reason_of(repetition, marked, text) is None


def test_a_line_that_repeats_the_one_before_it_ends_the_suggestion() -> None:
    assert repetition("a.pop()\n    a.pop()\n    a.pop()", context_of("def f(a):\n    ║\n")) == "a.pop()"
