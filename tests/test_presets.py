"""Which stretch of a text each preset concerns."""

from __future__ import annotations

import pytest

from growth import LINEAR, growth
from midspan_engine.errors import InputError
from midspan_server.presets import PresetId, stretch_of


def shown(preset: PresetId | None, text: str) -> str:
    """Returns the text with the stretch in brackets; the selection is what lies between two bars."""
    start = text.index("|")
    end = text.index("|", start + 1) - 1
    text = text.replace("|", "")
    stretch = stretch_of(preset, text, start, end)
    return f"{text[: stretch.start]}{stretch.lead}[{text[stretch.start : stretch.end]}]{text[stretch.end :]}"


@pytest.mark.parametrize(
    ("text", "stretch"),
    [
        ("x = |1|\n", "x = [1]\n"),
        ("|a = 1\nb = 2\n|c\n", "[a = 1\nb = 2\n]c\n"),
    ],
)
def test_a_selection_is_what_is_edited(text: str, stretch: str) -> None:
    for preset in ("refill", "touch_up", "rewrite", None):
        assert shown(preset, text) == stretch  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "stretch"),
    [
        ("def f(a):||\n    ...\nx\n", "def f(a):\n    [...]\nx\n"),
        ("def f(a):\n    pass||\n", "def f(a):\n    [pass]\n"),
        ("def f(a): ||...\n", "def f(a): [...]\n"),
        ("def f(a): ||...  # later\n", "def f(a): [...]  # later\n"),
        ("def f(a):||\n    if a:\n        pass\n", "def f(a):\n    if a:\n        pass\n    []\n"),
        ("def f(a):||\n\nx = 1\n", "def f(a):\n    []\n\nx = 1\n"),
        ("def f(a):||", "def f(a):\n    []"),
        ("if x:\n\tdef f(a):||\n", "if x:\n\tdef f(a):\n\t\t[]\n"),
        ("def f(a):||\n    b = 1\n\n    c = 2\n\nx\n", "def f(a):\n    b = 1\n\n    c = 2\n    []\n\nx\n"),
        ("class A:\n    ||x: ...\n", "class A:\n    x: ...\n    []\n"),
        (
            "class A:\n    def f(self):\n        ||x = 1\n    y = 2\n",
            "class A:\n    def f(self):\n        x = 1\n        []\n    y = 2\n",
        ),
    ],
)
def test_a_body_is_its_stub_or_what_follows_its_last_line(text: str, stretch: str) -> None:
    assert shown("body", text) == stretch


@pytest.mark.parametrize(
    ("text", "stretch"),
    [
        ("    x = f(||1)\n", "    x = f([1)]\n"),
        ("|    x = f(1)|\n", "    x = [f(1)]\n"),
        ("|    return a + b|\n", "    return [a + b]\n"),
        ("|a = 1\n    print(a)\n|b\n", "a = 1\n    print([a)]\nb\n"),
        ("|if a == b:|\n", "if [a == b:]\n"),
        ("|name|\n", "[name]\n"),
        ("|x += 1|\n", "x += [1]\n"),
        ("|a.b[key] = (1,|\n", "a.b[key] = [(1,]\n"),
        ("|a: dict[str, int] = {|\n", "a: dict[str, int] = [{]\n"),
        ("|del a.b[|\n", "del [a.b[]\n"),
        ("|  a >= f(b)|\n", "  a >= f([b)]\n"),
    ],
)
def test_a_tail_is_the_end_of_the_last_line(text: str, stretch: str) -> None:
    assert shown("tail", text) == stretch


@pytest.mark.parametrize(("preset", "text"), [("refill", "x ||\n"), ("body", "x = ||1\n"), ("tail", "x\n||\ny")])
def test_nothing_to_do_is_said(preset: PresetId, text: str) -> None:
    with pytest.raises(InputError):
        shown(preset, text)


@pytest.mark.parametrize("line", [" ", "\t ", "a ", "pass ", "(", "'", "[", "[a]"])
def test_a_long_line_takes_time_in_proportion(line: str) -> None:
    def asked(n: int) -> None:
        text = f"def f():\n    {line * n}x\n"
        for preset in ("tail", "body"):
            stretch_of(preset, text, 9, len(text) - 1)

    assert growth(asked, 500) < LINEAR


def test_a_block_with_a_long_head_takes_time_in_proportion() -> None:
    assert growth(lambda n: stretch_of("body", f"def {'f' * 20 * n}():\n" + "  x\n" * n, 0, 0), 500) < LINEAR
