"""What counts as a hole of a text, and what does not."""

from __future__ import annotations

import pytest

from growth import LINEAR, growth
from midspan_server.holes import find_holes, holes_at


def found(text: str, marker: str = "___", language: str = "python") -> list[str]:
    """Returns the text with every hole in brackets, hole by hole with a little around it."""
    return [
        f"{text[max(hole.start - 3, 0) : hole.start]}[{text[hole.start : hole.end]}]{text[hole.end : hole.end + 2]}"
        for hole in find_holes(text, 0, len(text), marker, language)
    ]


@pytest.mark.parametrize(
    ("text", "holes"),
    [
        ("x = f()\n", [" f([])\n"]),
        ("x = f( )\n", [" f([ ])\n"]),
        ("x = a[0]()\n", ["0]([])\n"]),
        ("def f():\n    pass\n", ["   [pass]\n"]),
        ("def f(): ...\n", ["): [...]\n"]),
        ("class A:\n    ...\n", ["   [...]\n"]),
        ("class A(): ...\n", ["): [...]\n"]),
        ("def f():\n    pass  # TODO\n", ["   [pass]  "]),
        ("def f(): ...  # TODO\n", ["): [...]  "]),
        ("def f[T](a=g()): ...\n", ["=g([]))", "): [...]\n"]),
        ("x = g(\ndef f():\n    ...\n", ["   [...]\n"]),
        ("class A:\n    x: int\n    def f(self) -> int: ...\n", ["t: [...]\n"]),
        ("def f(\n    a: int,\n) -> int: ...\n", ["t: [...]\n"]),
        ("if x:\n    y = 1\nelse: ...\n", ["e: [...]\n"]),
        ("if f(\n    x\n)[0]: ...\n", ["]: [...]\n"]),
        ("if x \\\n    and y: ...\n", ["y: [...]\n"]),
        ("match x:\n    case _: ...\n", ["_: [...]\n"]),
        ("match x:\n    case [_]: ...\n", ["]: [...]\n"]),
        ("match x:\n    case (_): ...\n", ["): [...]\n"]),
        ("f = lambda: ...\n", ["a: [...]\n"]),
        ("x: object = lambda: ...\n", ["a: [...]\n"]),
        ("lambda(): ...\n", ["): [...]\n"]),
        ("within()\n", ["in([])\n"]),
        ("x = ___\nreturn ___.y\n", [" = [___]\nr", "rn [___].y"]),
        ("print('___')  # ___\n", ["t('[___]')", " # [___]\n"]),
    ],
)
def test_calls_bodies_and_markers_are_holes(text: str, holes: list[str]) -> None:
    assert found(text) == holes


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    return 1\n",
        "x = ()\n",
        "print('f()')\n# f()\n",
        '"""Says:\n    pass\n"""\n',
        "x = y[...]\n",
        "passed = 1\n",
        "a____b = 1\n",
        "__init__ = 1\n",
        "def f[T]():\n    return 1\n",
        "class A[T]():\n    x = 1\n",
        "def f[T: (int, str), U: A[T]]():\n    return 1\n",
        f"def {'f' * 300}():\n    return 1\n",
        "def \\\n    f():\n    return 1\n",
        "for x in():\n    y = 1\n",
        "def f():\n    yield()\n",
        "x = [\n    1,\n    ...\n]\n",
        "x = {1: ...\n}\n",
        "x = \\\n    ...\n",
        "class A:\n    x: ...\n",
        "self.x: ...\n",
        "x[0] : ...  # any\n",
        "match: ...\n",
        "case[0]: ...\n",
        "self.a[0][1]: ...\n",
        "self.a[b[0]]: ...\n",
        "a[0].b: ...\n",
        "f(x).b: ...\n",
        "(x): ...\n",
        "a . b: ...\n",
        "a['x]']: ...\n",
        "a['\\d']: ...\n",
        "a [0]: ...\n",
        "x = 1; y: ...\n",
        "x: int = ...\n",
        "x[\n    0\n]: ...\n",
        "x[\n    0, f(\n        1\n    )\n].y: ...\n",
        "x = 1\nself \\\n    .x: ...\n",
        "(\n    x\n): ...\n",
    ],
)
def test_what_only_looks_like_a_hole_is_none(text: str) -> None:
    assert found(text) == []


def test_other_languages_have_markers_only() -> None:
    assert found("f(); int x = ___;", language="c") == [" = [___];"]


def test_the_marker_is_the_users() -> None:
    assert found("x = TODO + ___ + TODOS\n", "TODO") == [" = [TODO] +"]
    assert found("x = <?>\n", "<?>") == [" = [<?>]\n"]


def test_cursors_name_the_hole_that_they_touch_or_an_empty_one() -> None:
    text = "x = ___\ny = g(1, )\n"
    holes = holes_at(text, [text.index(", )") + 2, 5, 7])
    assert [(hole.start, hole.end) for hole in holes] == [(4, 7), (17, 17)]
    assert [(hole.start, hole.end) for hole in holes_at(text, [4])] == [(4, 7)]
    assert [(hole.start, hole.end) for hole in holes_at(text, [3, 8])] == [(3, 3), (8, 8)]


def test_holes_that_overlap_are_one() -> None:
    assert found("def f():\n    ...\n", "...") == ["   [...]\n"]
    assert found("x = f()\n", "()") == ["= f[()]\n"]


def test_finding_takes_time_in_proportion_to_the_text() -> None:
    assert growth(lambda n: find_holes("f('') + g()\n" * n, 0, 12 * n), 300) < LINEAR
    assert growth(lambda n: find_holes("[" * n + "def f[T](" * n + ")" * n, 0, 11 * n), 500) < LINEAR
    assert growth(lambda n: find_holes("x: ...  # " * n, 0, 10 * n), 300) < LINEAR
    assert growth(lambda n: holes_at("f()\n" * n, list(range(2, 4 * n, 4))), 300) < LINEAR
