"""The keystroke simulation: what a key is, what is accepted, and the counting."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from midspan_engine.evaluation.keystrokes import (
    IN_TIME_MS,
    REGION_LINES,
    Typist,
    draw_regions,
    key_at,
    n_keys,
    right_part,
)
from midspan_engine.evaluation.language_server import LanguageServer, Offer
from midspan_engine.evaluation.report import Accept
from midspan_engine.training.corpus import SourceFile
from served_checkpoint import CHECKPOINT

TEXT = "import os\n\n\ndef f(a):\n    if a:\n        return os\n    return None\n"
FILE = SourceFile("p", "a.py", "MIT", TEXT)
START, END = TEXT.index("def"), len(TEXT) - 1


class Scripted:
    """A server that offers what a test says, given what is typed so far."""

    def __init__(self, offers: Callable[[str], tuple[str, float]]) -> None:
        self.text = ""
        self._offers = offers

    def open(self, text: str, file: str) -> None:
        self.text = text

    def wait_for_files(self, workspace: str) -> None:
        pass

    def insert(self, offset: int, text: str) -> None:
        self.text = self.text[:offset] + text + self.text[offset:]

    def complete(self, offset: int) -> Offer:
        return Offer(*self._offers(self.text[:offset]))


def test_enter_brings_the_indentation_of_the_next_line() -> None:
    keys = []
    at = START
    while at < END:
        keys.append(key_at(TEXT, at))
        at += len(keys[-1])
    assert "".join(keys) == TEXT[START:END]
    assert "\n        " in keys
    assert n_keys(TEXT[START:END]) == len(keys) == len("def f(a):if a:return osreturn None") + 3


@pytest.mark.parametrize(
    ("offered", "accepted"),
    [
        ("return os", ("whole", "return os", 1)),
        ("return os  ", ("whole", "return os", 1)),
        ("return os\n    return None", ("whole", "return os\n    return None", 1)),
        ("return os\n    return 1", ("line", "return os", 1)),
        ("return o", ("words", "return", 1)),
        ("return self", ("words", "return", 1)),
        ("return os + 1", ("words", "return os", 2)),
        ("r", None),
        ("raise", None),
        ("", None),
    ],
)
def test_a_suggestion_is_accepted_as_far_as_it_is_right(offered: str, accepted: tuple[str, str, int] | None) -> None:
    assert right_part(offered, "return os\n    return None") == accepted


def test_typing_without_suggestions_saves_nothing_and_gives_the_file_back() -> None:
    server = Scripted(lambda typed: ("", 1.0))
    typist = Typist(server)  # type: ignore[arg-type]
    region = typist.type_region(FILE, START, END)
    assert server.text == TEXT
    typing = typist.report([region], seed=0)
    assert (typing.saved, typing.shown, typing.accepted) == (0.0, 0, 0)
    assert typing.keys == n_keys(TEXT[START:END]) == typing.requests + 1  # nobody asks behind the last key


def test_perfect_suggestions_save_all_but_the_first_key_and_the_accepting_ones() -> None:
    def rest_of_line(typed: str) -> tuple[str, float]:
        return TEXT[len(typed) :].split("\n", 1)[0], 10.0

    server = Scripted(rest_of_line)
    typist = Typist(server)  # type: ignore[arg-type]
    region = typist.type_region(FILE, START, END)
    assert server.text == TEXT
    typing = typist.report([region], seed=0)
    # By hand: the first letter of the region and three times Enter; each of four lines is accepted with one key.
    assert typing.saved == (typing.keys - 4 - 4) / typing.keys
    assert typing.saved == typing.saved_in_time
    assert (typing.accepted, typing.precision) == (4, 1.0)
    assert {accept.how for accept in region.accepts} == {"whole"}


def test_a_wrong_suggestion_that_stays_while_the_user_types_along_is_one() -> None:
    ghost = "def f(a)wrong"

    def along(typed: str) -> tuple[str, float]:
        written = typed[START:]
        return (ghost[len(written) :], 1.0) if ghost.startswith(written) and len(written) > 7 else ("", 1.0)

    typist = Typist(Scripted(along))  # type: ignore[arg-type]
    typist.type_region(FILE, START, END)
    assert (typist.n_shown, typist.n_accepted) == (1, 0)


def test_an_answer_that_comes_late_saves_nothing_in_time() -> None:
    typist = Typist(Scripted(lambda typed: (TEXT[len(typed) : END], 2 * IN_TIME_MS)))  # type: ignore[arg-type]
    region = typist.type_region(FILE, START, END)
    typing = typist.report([region], seed=0)
    assert region.accepts == (Accept("whole", region.keys - 2, 2 * IN_TIME_MS),)
    assert typing.saved > 0.8
    assert typing.saved_in_time == 0.0


def test_regions_are_drawn_by_the_seed_behind_the_first_tenth_and_begin_at_text() -> None:
    text = "".join(f"def f{n}():\n    return {n}\n" for n in range(40))
    files = [SourceFile("p", f"{n}.py", "MIT", text) for n in range(6)]
    first, again, other = (list(draw_regions(files, 4, seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert len(first) == 4
    for file, start, end in first:
        whole = file.text
        assert start >= len(whole) // 10 - 20
        assert whole[start].strip()
        assert whole[end - 1].strip()
        assert whole[start:end].count("\n") == REGION_LINES - 1


def test_short_files_have_no_region() -> None:
    assert list(draw_regions([SourceFile("p", "a.py", "MIT", TEXT)], 1, seed=0)) == []


@pytest.mark.slow
def test_a_region_is_typed_through_the_real_language_server() -> None:
    helper = SourceFile("p", "helper.py", "MIT", TEXT.replace("def f", "def g"))
    with LanguageServer.running(CHECKPOINT, files=[FILE, helper]) as server:
        typist = Typist(server)
        region = typist.type_region(FILE, START, END)
    typing = typist.report([region], seed=0)
    saved = sum(accept.saved for accept in region.accepts)
    assert typing.requests >= 1
    assert saved < region.keys == n_keys(TEXT[START:END])
    assert typing.saved == saved / region.keys
