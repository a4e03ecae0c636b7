"""What counts as a hole of a text, and what does not."""

from __future__ import annotations

import pytest

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
