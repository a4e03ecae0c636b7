"""What a user sees of an answer: around the gap, in a pipe, as JSON, and while the canvas settles."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
from rich.console import Console

from midspan_engine.protocol import Candidate, Draft, Filled, Slot, Stats
from midspan_server.answer import json_answer, piped_answer, print_answer
from midspan_server.excerpt import SUGGESTION_STYLE, excerpt
from midspan_server.source import Source, decode_source
from midspan_server.terminal_canvas import canvas_text, watching

CRLF = decode_source(Path("shop.py"), b"def total(\r\n    pass\r\n")
TWO_LINES = Filled(
    id=1,
    candidates=(Candidate(gaps=("price,\n    n",), confidence=0.75), Candidate(gaps=("n",), confidence=0.5)),
    stats=Stats(ms=12.34, steps=2, encoder_steps=5, decoder_ms=9.87),
)
DRAFT = Draft(
    id=1,
    step=3,
    slots=(
        Slot("return ", True, True, 0.0),
        Slot("price", False, True, 0.01),
        Slot(" *", False, False, 0.05),
        Slot(" n", False, False, 1.0),
        Slot("\x1b\n", False, False, 5.0),
    ),
)


def printed(filled: Filled, source: Source = CRLF) -> str:
    output = io.StringIO()
    print_answer(Console(file=output, width=100), filled, source, offset=10)
    return output.getvalue()


def test_the_suggestion_stands_out_at_its_place_between_numbered_lines() -> None:
    text = excerpt("a\nb\nprice * \nd\n", 12, "n\n+ 1", n_around=1)
    assert text.plain.split("\n") == ["    2 b", "    3 price * n", "    4 + 1", "    5 d"]
    highlighted = "".join(text.plain[span.start : span.end] for span in text.spans if span.style == SUGGESTION_STYLE)
    assert highlighted == "n+ 1"


def test_an_excerpt_of_a_line_of_megabytes_is_short() -> None:
    text = excerpt("x" * 5_000_000, 2_500_000, "here")
    assert "…" + "x" * 200 + "here" + "x" * 200 + "…" in text.plain
    assert len(text.plain) < 500


def test_escape_sequences_in_a_file_never_reach_the_terminal() -> None:
    assert "\x1b" not in excerpt("\x1b[2J", 4, "\x1b]0;title\x07").plain
    assert "\x1b" not in canvas_text(DRAFT).plain


def test_a_pipe_gets_the_text_alone_with_the_line_ends_of_the_file() -> None:
    assert piped_answer(TWO_LINES, CRLF) == b"price,\r\n    n\r\nn\r\n"
    assert piped_answer(Filled(id=1, silence="nothing fits"), CRLF) == b""


def test_json_has_the_promised_shape() -> None:
    assert msgspec.json.decode(json_answer(TWO_LINES, CRLF)) == {
        "candidates": [{"text": "price,\r\n    n", "confidence": 0.75}, {"text": "n", "confidence": 0.5}],
        "silence": None,
        "stats": {"ms": 12.3, "steps": 2, "encoder_steps": 5, "carried_steps": 0, "decoder_ms": 9.9},
    }
    silent = msgspec.json.decode(json_answer(Filled(id=1, silence="nothing fits"), CRLF))
    assert (silent["candidates"], silent["silence"]) == ([], "nothing fits")


def test_a_terminal_gets_alternatives_by_number_and_the_cost() -> None:
    told = printed(TWO_LINES)
    assert "    2     n" in told
    assert "    2 n  0.50" in told
    assert "12 ms, 7 passes, 2 of the decoder, 10 ms of them in the decoder, confidence 0.75" in told


def test_a_silence_is_told_with_its_reason() -> None:
    assert "no suggestion: nothing fits" in printed(Filled(id=1, silence="nothing fits"))


def test_pins_are_dim_accepted_slots_bold_and_the_others_coloured_by_entropy() -> None:
    assert [str(span.style) for span in canvas_text(DRAFT).spans] == ["dim", "bold", "green", "yellow", "red"]


def test_without_a_terminal_every_step_is_one_line() -> None:
    output = io.StringIO()
    with watching(Console(file=output, width=20)) as show:
        show(DRAFT)
    assert output.getvalue() == "pass 3, 1 of 4 settled: 'price * n\\x1b\\n'\n"


def test_on_a_terminal_the_last_canvas_stays() -> None:
    output = io.StringIO()
    with watching(Console(file=output, width=60, force_terminal=True)) as show:
        show(DRAFT)
    assert "pass 3, 1 of 4 settled" in output.getvalue()
    assert "return " in output.getvalue()
