"""A suggestion never repeats what follows."""

from __future__ import annotations

import pytest

from filter_case import reason_of
from midspan_server.filters.overlap import overlap


@pytest.mark.parametrize(
    ("marked", "text"),
    [
        ("x = ║foo(1)", "foo(1)"),
        ("x = ║ + b", "a + b"),
        ("x║ = 1", "y ="),
        ("x: list[║ = []\n", "int] = []"),
        ("x: dict ║{}\n", "= {}"),
        ("x = f║()\n", "or()"),
        ("f(║, b)", "a,"),
        ("if x║:", " > 1:"),
        ("total║ += price", "_sum += price"),
        ("f(║b)", "a, b"),
        ("f(a ║ size.width)\n", "+ si"),
        ("def f(a) -║ol:\n", "> bool:"),
        ("except TimeoutErro║r as error:\n", "r as e"),
        ('log("║ts log is {a}")\n', "the host, its log is {a"),
        ("def f():\n    ║\n    return x\n", "return x"),
        ("def f():\n    ║\n    return x\n", "x = 1\n    return x"),
        ("def f():\n    ret║\n    return x\n", "urn x"),
        ("def f():\n    ║\n\n    a = 1\n    b = 2\n", "a = 1\n    b = 2"),
    ],
)
def test_a_repeated_suffix_is_dropped(marked: str, text: str) -> None:
    assert reason_of(overlap, marked, text) == "the suggestion repeats what follows the cursor"


@pytest.mark.parametrize(
    ("marked", "text"),
    [
        ("x = ║\nx = 1\n", "x"),
        ("def f():\n    ║\n    return x\n", "x = 1"),
        ("f(║)", "g(a)"),
        ("f(║, b)", "b"),
        ("x = ║ + b", "b"),
        ("x = [\n    ║\n]\n", "1,\n]"),
        ("if a:\n    x = 1\n║\nelse:\n    x = 2\n", "elif b:\n    x = 3"),
    ],
)
def test_what_only_looks_like_the_suffix_is_kept(marked: str, text: str) -> None:
    assert reason_of(overlap, marked, text) is None
