"""A suggestion is indented as the file is, and as Python asks."""

from __future__ import annotations

import pytest

from filter_case import context_of
from midspan_server.context import MAX_PREFIX
from midspan_server.filters import Dropped
from midspan_server.filters.indentation import indentation


@pytest.mark.parametrize(
    ("marked", "text", "mended"),
    [
        ("x = ║", " 1", "1"),
        ("def f():\n    ║\n", " return 1", "return 1"),
        ("def f():\n    x = 1\n    ║\n", "    return x", "return x"),
        ("def f():\n    ║\n", "if a:\n        b()\n      c()", "if a:\n        b()"),
        ("def f():\n\t║\n", "if a:\n\t\tb()", "if a:\n\t\tb()"),
        ("def f():\n\tx = 1\n\t║\n", "if a:\n        b()", "if a:\n\t\tb()"),
        ("def f():\n    x = 1\n    ║\n", "if a:\n\t\tb()", "if a:\n        b()"),
        ("def f():\n  x = 1\n  ║\n", "if a:\n\t\tb()", "if a:\n    b()"),
    ],
)
def test_blanks_are_mended(marked: str, text: str, mended: str) -> None:
    assert indentation(text, context_of(marked)) == mended


@pytest.mark.parametrize(
    ("marked", "text"),
    [
        ("if x:\n║\n", "return 1"),
        ("def f():\n    if x:\n    ║\n", "y = 1"),
    ],
)
def test_a_line_that_no_block_takes_is_dropped(marked: str, text: str) -> None:
    assert isinstance(indentation(text, context_of(marked)), Dropped)


@pytest.mark.parametrize(
    ("marked", "text"),
    [
        ("x =║", " 1"),
        ("if x:\n║\n", "    return 1"),
        ("def f():\n    return 1\n║\n", "x = 2"),
        ("f(a,\n  ║\n", "b)"),
        ("x = '║'", " a"),
        ('def f():\n    """Does.\n\n      ║\n    """\n', "odd:\n   x"),
        ("def f():\n      ║\n", "return 1"),
        ("def f():\n    x = 1\n    ║\n", "# why\n    y = 2"),
        ("if a:\n    f(b,\n      c)\n    ║\n", "g()"),
        ("class A:\n    def f(self):\n        pass\n\n\n║\n", "def g():\n    pass\n\n\nx = g()"),
        ("class A:\n    def f(self):\n        pass\n\n║\n", "    def g(self):\n        pass"),
        ("if x:\n    # why\n    ║\n", "y = 1"),
        ("def f(a,\n      b):\n    ║\n", "return a"),
        ("class A(B,\n        C):\n    ║\n", "x = 1"),
        ("if (a and\n        b):\n    ║\n", "c()"),
        ("with a, \\\n        b:\n    ║\n", "c()"),
        ("if a:\n    b()  # so \\\n    ║\n", "c()"),
        ("x = 1\n║\n", "with a, \\\n        b:\n    c()"),
        ("def f():\n    s = '''\ntext\n'''\n║\n", "    return s"),
        ("def f():\n    x = 1\n#    old\n║\n", "    return x"),
        ("def f():\n    x = [\n1,\n2]\n║\n", "    y = 2"),
        ("def f():\n    if a:\n        s = '''\ntext\n'''\n        ║\n", "return s\n    return 2"),
        ("def f():\n    x = {1:\n        ║\n", " 2}"),
        ("def f():\n    x = 1 + \\\n        ║\n", " 2"),
        ("def f(a, b=g(\n\nclass A:\n    def g(self):\n        x = 1\n        ║\n", "y = 2\n    z = 3"),
    ],
)
def test_what_fits_stays(marked: str, text: str) -> None:
    assert indentation(text, context_of(marked)) == text


def test_a_block_whose_start_was_cut_off_may_end() -> None:
    lines = "".join(f"        x_{n} = 1\n" for n in range(MAX_PREFIX // 16))
    marked = f"class A:\n    def f(self):\n{lines}        ║\n"
    assert indentation("y = 2\n    z = 3", context_of(marked)) == "y = 2\n    z = 3"
