"""A suggestion ends where the block of the cursor ends."""

from __future__ import annotations

import pytest

from filter_case import context_of
from midspan_server.filters.scope import scope


@pytest.mark.parametrize(
    ("marked", "text", "left"),
    [
        ("def f():\n    ║\n", "return 1\n\ndef g():\n    return 2", "return 1"),
        ("class A:\n    def f(self):\n        ║\n", "return 1\n\n    def g(self):\n        pass", "return 1"),
        ("if a:║\n", "\n    x = 1\ny = 2", "\n    x = 1"),
        ("x = 1\n║\n", "def f():\n    pass\n\ndef g():\n    pass", "def f():\n    pass"),
        ("f(║\n", "\n    a,\n)\ng()", "\n    a,\n)"),
    ],
)
def test_lines_outside_the_block_are_cut(marked: str, text: str, left: str) -> None:
    assert scope(text, context_of(marked)) == left


@pytest.mark.parametrize(
    ("marked", "text"),
    [
        ("def f():\n    ║\n", "if a:\n        b()\n    return 1"),
        ("def f():\n    ║\n", "x = [\n  1,\n]\n    return x"),
        ("if a:║\n", "\n    x = 1\nelse:\n    x = 2"),
        ("║\n", "import os\nimport sys"),
        ("def f():\n    ║\n", '"""Does\n\nit.\n"""'),
    ],
)
def test_lines_of_the_block_stay(marked: str, text: str) -> None:
    assert scope(text, context_of(marked)) == text


def test_other_languages_have_other_blocks() -> None:
    text = "return 1;\n}"
    assert scope(text, context_of("int f() {\n  ║\n", "c")) == text
