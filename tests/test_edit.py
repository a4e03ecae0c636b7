"""Edits and holes in the engine: what is not hidden stays, what is hidden is filled, and one hole knows of another."""

from __future__ import annotations

import re
import shutil
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from midspan_engine.causal_reader import CausalReader
from midspan_engine.chat import Chat, Frame
from midspan_engine.config import InfillConfig
from midspan_engine.edit import least_likely, revise
from midspan_engine.engine import Engine
from midspan_engine.errors import Cancelled, InputError
from midspan_engine.likelihood import Likelihood, Piece
from midspan_engine.protocol import Draft, Fill, Filled, Held
from served_checkpoint import CHECKPOINT
from tiny_engine import BLANKS, REFERENCE, tiny_engine

VOTING = msgspec.structs.replace(BLANKS, causal_weight=0.5, sure_confidence=0.9, quote_tokens=6)
BEFORE = "class Stock:\n    def remove(self, name, count):\n        if name not in self.counts:\n"
MISTYPED = "            raise KeyError(name)\n        self.counts[nmae] = self.counts.get(name, 0) - count\n"
AFTER = "\n    def total(self):\n        return sum(self.counts.values())\n"


@pytest.fixture(scope="module")
def engine() -> Engine:
    torch.set_num_threads(1)
    return Engine.load(CHECKPOINT)


def revised(engine: Engine, *parts: str, held: tuple[str, ...], **wishes: object) -> Filled:
    request = Fill(
        id=1,
        document="a.py",
        parts=parts,
        held=tuple(Held(text=text, single_line="\n" not in text) for text in held),
        **wishes,  # type: ignore[arg-type]
    )
    return revise(engine, request, received=time.perf_counter(), is_cancelled=lambda: False)


def texts(filled: Filled, held: tuple[str, ...]) -> tuple[str, ...]:
    return filled.candidates[0].gaps if filled.candidates else held


# What stays


@pytest.mark.parametrize("infill", [BLANKS, VOTING, REFERENCE], ids=["mask noise", "with a vote", "uniform noise"])
@pytest.mark.parametrize("strength", [0.2, 0.6])
def test_what_is_not_hidden_stays_byte_for_byte(
    infill: InfillConfig, strength: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("midspan_engine.edit.MARGIN", -1e9)  # a network that knows nothing would change nothing
    text = "raise KeyError(name)  # é\n\tself.counts[name] = 0"
    engine = tiny_engine(infill)
    kept: list[str] = []
    fill = engine.fill

    def watched(request: Fill, **how: object) -> Filled:
        kept.append("(?s:.*)".join(map(re.escape, request.parts)))
        return fill(request, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(engine, "fill", watched)
    filled = revised(engine, BEFORE, AFTER, held=(text,), strength=strength)
    (new,) = texts(filled, (text,))
    assert kept
    assert re.fullmatch(kept[-1], BEFORE + new + AFTER)
    pieces = Likelihood(tiny_engine(infill), Fill(id=1, document="b", parts=()), lambda: False).of_pieces(
        BEFORE, "x = 1", AFTER
    )
    assert "".join("x = 1"[piece.start : piece.end] for piece in pieces) == "x = 1"


def test_without_a_blank_token_an_edit_keeps_the_number_of_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("midspan_engine.edit.MARGIN", -1e9)
    monkeypatch.setattr(Likelihood, "best_start", lambda self, before, text, after, or_nothing: text)
    engine = tiny_engine(REFERENCE)
    sizes: list[list[int]] = []
    fill = engine.fill

    def watched(request: Fill, **how: object) -> Filled:
        filled = fill(request, **how)  # type: ignore[arg-type]
        tokens = engine.tokens
        sizes.extend(
            [len(tokens.encode(each.text)), len(tokens.encode(gap))]
            for each, gap in zip(request.held, filled.candidates[0].gaps if filled.candidates else (), strict=False)
        )
        return filled

    monkeypatch.setattr(engine, "fill", watched)
    revised(engine, BEFORE, AFTER, held=("self.counts[name] = 0",), strength=0.5)
    assert sizes
    assert all(new <= old + 1 for old, new in sizes), "a gap has the slots of its text and of the healed piece"


def test_the_least_likely_share_is_hidden_and_blanks_never_are() -> None:
    text = "ab cd\n  ef gh"
    pieces = [Piece(0, 2, -1.0), Piece(2, 5, -9.0), Piece(5, 8, -99.0), Piece(8, 10, -8.0), Piece(10, 13, -2.0)]
    hidden = [text[start:end] for start, end in least_likely(text, pieces, 0.5)]
    assert hidden == [" cd", "ef"]
    assert [text[start:end] for start, end in least_likely(text, pieces, 1.0)] == ["ab cd", "ef gh"]
    assert len(least_likely(text, pieces, 0.0)) == 1


# What is done


def test_a_mistyped_name_is_what_fits_worst_and_is_mended(engine: Engine) -> None:
    pieces = Likelihood(engine, Fill(id=1, document="a.py", parts=()), lambda: False).of_pieces(
        BEFORE, MISTYPED.strip(), AFTER
    )
    worst = min(pieces, key=lambda piece: piece.log_probability)
    assert "nmae" in MISTYPED.strip()[worst.start : worst.end + 3]
    filled = revised(engine, BEFORE, AFTER, held=(MISTYPED,), strength=0.15, min_confidence=0.1)
    assert texts(filled, (MISTYPED,)) == (MISTYPED.replace("nmae", "name"),)


def test_a_slip_is_mended_by_a_word_of_the_document_without_a_canvas(engine: Engine) -> None:
    before, after = "def total(values):\n    count = 0\n    for value in values:\n", "\n    return count\n"
    held = ("        count += vlaue",)
    filled = revised(engine, before, after, held=held, strength=0.15, min_confidence=0.5)
    assert texts(filled, held) == ("        count += value",)
    assert filled.stats.steps == 0


def test_a_word_that_only_resembles_another_is_no_slip(engine: Engine) -> None:
    before = "def first(rows):\n    if not rows:\n        return None\n"
    held = ("    row = rows[0]",)
    after = "\n    print(rows, len(rows))\n"
    assert texts(revised(engine, before, after, held=held, strength=0.15, min_confidence=0.1), held) == held


def test_sound_code_is_left_alone_by_a_light_touch(engine: Engine) -> None:
    sound = MISTYPED.replace("nmae", "name")
    assert not revised(engine, BEFORE, AFTER, held=(sound,), strength=0.15, min_confidence=0.1).candidates


def test_what_exceeds_a_canvas_takes_several_in_turn(engine: Engine) -> None:
    sound = MISTYPED.replace("nmae", "name")
    text = (
        MISTYPED
        + "\n    def drop(self, name, count):\n        if name not in self.counts:\n"
        + sound
        + sound
        + MISTYPED
    )
    assert len(engine.tokens.encode(text)) > engine.model.config.canvas_length
    drafts: list[Draft] = []
    request = Fill(
        id=1, document="a.py", parts=(BEFORE, AFTER), held=(Held(text=text, single_line=False),), strength=0.1
    )
    filled = revise(engine, request, received=time.perf_counter(), is_cancelled=lambda: False, on_draft=drafts.append)
    (new,) = texts(filled, (text,))
    assert "nmae" not in new
    assert new.count("\n") == text.count("\n")
    shares = [draft.share for draft in drafts]
    assert shares[0] < 0.5 < shares[-1] <= 1
    assert [draft.step for draft in drafts] == list(range(1, len(drafts) + 1))


def test_an_edit_stops_at_the_next_pass_when_it_is_cancelled(engine: Engine) -> None:
    n_looks = 0

    def is_cancelled() -> bool:
        nonlocal n_looks
        n_looks += 1
        return n_looks > 3

    request = Fill(id=1, document="a.py", parts=(BEFORE, AFTER), held=(Held(text=MISTYPED, single_line=False),))
    with pytest.raises(Cancelled):
        revise(engine, request, received=time.perf_counter(), is_cancelled=is_cancelled)
    assert n_looks == 4


def test_an_edit_out_of_time_says_so() -> None:
    filled = revised(tiny_engine(), "x = f(", ")\n", held=("",), deadline_ms=0.0)
    assert not filled.candidates
    assert "deadline" in (filled.silence or "")


def test_instructions_are_declined_with_what_can_be_done_instead() -> None:
    filled = revised(tiny_engine(), "x = ", "\n", held=("1",), instruction="make it two")
    assert not filled.candidates
    assert "follows no instructions; it can fill a selection anew (refill)" in (filled.silence or "")


def test_a_model_that_follows_an_instruction_sees_what_it_is_to_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(CHECKPOINT, tmp_path / "checkpoint")
    (tmp_path / "checkpoint" / "chat_template.jinja").write_text("user: {{ messages[0].content }}\nmodel: ")
    engine, frame = Engine.load(tmp_path / "checkpoint"), Chat.frame
    asked: list[str] = []

    def listened(*arguments: Any) -> Frame:
        found = frame(*arguments)
        asked.append(engine.tokens.decode(found.opening))
        return found

    monkeypatch.setattr(Chat, "frame", listened)
    revised(engine, "total = ", "\n", held=("f('```')",), instruction="call g instead", max_tokens=8)
    assert asked
    assert all("````\nf('```')\n````" in each and "call g instead" in each for each in asked)
    assert all("`````python\n" in each for each in asked), "the reply's fence is longer than any in what is said"


@pytest.mark.parametrize(
    "wish", [{"held": ()}, {"held": ("", "")}, {"held": ("x",), "strength": 2.0}, {"held": ("x",), "strength": 0.0}]
)
def test_a_request_that_does_not_fit_is_refused(wish: dict[str, object]) -> None:
    held = wish.pop("held")
    with pytest.raises(InputError):
        revised(tiny_engine(), "a", "b", held=held, **wish)  # type: ignore[arg-type]


# Holes

NEW_NAMES = (
    ("class Node:\n    def __init__(self, ", "):\n        self.value = ", "\n        self.next = None\n"),
    ("def total(orders):\n    result = 0\n    for ", " in orders:\n        result += ", ".price\n    return result\n"),
    ("def f(data):\n    for key, ", " in data.items():\n        print(key, ", ")\n"),
    ("def scale(x, ", "):\n    return x * ", "\n"),
    ("def compare(a, ", "):\n    return a == ", "\n"),
    ("def f(path):\n    with open(path) as ", ":\n        return ", ".read()\n"),
)
"""Two holes each, for a name that stands nowhere else."""


def test_holes_filled_together_agree_on_a_new_name_where_separate_fills_do_not(engine: Engine) -> None:
    together, apart = [], []
    for first, between, last in NEW_NAMES:
        a, b = texts(revised(engine, first, between, last, held=("___", "___")), ("", "___"))
        together.append(a == b and a.isidentifier())
        (c,) = texts(revised(engine, first, between + "___" + last, held=("___",)), ("",))
        (d,) = texts(revised(engine, first + "___" + between, last, held=("___",)), ("___",))
        apart.append(c == d and c.isidentifier())
    assert sum(joint and not separate for joint, separate in zip(together, apart, strict=True)) >= 2
    assert sum(together) > sum(apart) + 1


def test_holes_filled_together_lie_on_one_canvas(engine: Engine) -> None:
    drafts: list[Draft] = []
    held = (Held(text="___"), Held(text="___"))
    request = Fill(id=1, document="a.py", parts=NEW_NAMES[0], held=held)
    revise(engine, request, received=time.perf_counter(), is_cancelled=lambda: False, on_draft=drafts.append)
    pins = [slot.pinned for slot in drafts[0].slots]
    n_gaps = sum(before and not slot for before, slot in pairwise(pins))
    assert n_gaps == len(held)
    shown = "".join(slot.text for slot in drafts[0].slots)
    assert NEW_NAMES[0][1].rstrip() in shown, "and what stands between them is seen"


def test_a_later_hole_is_read_with_what_the_earlier_ones_got(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = tiny_engine(VOTING)
    read: list[list[int]] = []
    logits = CausalReader.logits
    monkeypatch.setattr(
        CausalReader, "logits", lambda self, ids, start: read.append(list(ids)) or logits(self, ids, start)
    )
    middle = " qqq "
    request = Fill(id=1, document="a.py", parts=("x = f(", middle, ")\n"), max_tokens=6)
    filled = engine.fill(request, received=time.perf_counter(), is_cancelled=lambda: False)
    assert filled.candidates
    first = filled.candidates[0].gaps[0]
    of_second = [each for each in map(engine.tokens.decode, read) if each.rfind(middle.strip()) > each.rfind("f(")]
    assert any(f"f({first} qqq" in each for each in of_second)


def test_holes_that_do_not_fit_one_canvas_are_filled_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = tiny_engine(BLANKS)
    asked: list[tuple[str, ...]] = []
    fill = engine.fill

    def watched(request: Fill, **how: object) -> Filled:
        asked.append(request.parts)
        return fill(request, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(engine, "fill", watched)
    monkeypatch.setattr(Likelihood, "best_start", lambda self, before, text, after, or_nothing: text)
    far = "\n" + "y = 1\n" * 20
    filled = revised(engine, "f(", ")" + far + "g(", ")\n", held=("", ""))
    assert [len(parts) for parts in asked] == [2, 2]
    first = texts(filled, ("", ""))[0]
    assert asked[1][0] == f"f({first}){far}g("


def test_an_empty_call_that_is_right_as_it_is_stays_empty(engine: Engine) -> None:
    code = "def shout(text):\n    return text.strip().upper()\n\n\ndef whisper(text):\n    return text.strip("
    assert not revised(engine, code, ").lower()\n", held=("",), min_confidence=0.1).candidates


def test_doubtful_holes_keep_what_they_hold_with_the_reason(engine: Engine) -> None:
    filled = revised(engine, "import zq\n\n\nzq.", "\n", held=("___",), min_confidence=0.999)
    assert not filled.candidates
    assert filled.silence
