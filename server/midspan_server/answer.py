"""The answer to `midspan fill` in its three forms: JSON, plain text for a pipe, lines around the gap for a terminal."""

from __future__ import annotations

import msgspec
from rich.console import Console
from rich.text import Text

from midspan_engine.protocol import Filled, Stats
from midspan_server.excerpt import SUGGESTION_STYLE, excerpt, visible
from midspan_server.silence import Cost
from midspan_server.source import Source


class JsonCandidate(msgspec.Struct, frozen=True):
    """One candidate, its text with the line ends of the file it is meant for."""

    text: str
    confidence: float


class JsonAnswer(msgspec.Struct, frozen=True):
    """What `midspan fill --json` prints."""

    candidates: list[JsonCandidate]
    silence: str | None
    stats: Cost


def json_answer(filled: Filled, source: Source) -> bytes:
    """Returns the answer as one line of JSON."""
    candidates = [JsonCandidate(source.to_file(found.text), found.confidence) for found in filled.candidates]
    return msgspec.json.encode(JsonAnswer(candidates, filled.silence, Cost.of(filled.stats)))


def piped_answer(filled: Filled, source: Source) -> bytes:
    """Returns the candidates alone, each followed by a line end, as UTF-8 with the line ends of the file."""
    return "".join(source.to_file(found.text + "\n") for found in filled.candidates).encode()


def print_answer(console: Console, filled: Filled, source: Source, offset: int) -> None:
    """Prints the lines around the gap with the best candidate in place, the other candidates, and the cost."""
    if not filled.candidates:
        console.print(Text(f"no suggestion: {filled.silence}", style="yellow"))
    else:
        console.print(excerpt(source.text, offset, filled.candidates[0].text))
    if len(filled.candidates) > 1:
        for number, found in enumerate(filled.candidates, 1):
            text = Text(visible(found.text), style=SUGGESTION_STYLE)
            console.print(Text.assemble((f"{number:5} ", "dim"), text, (f"  {found.confidence:.2f}", "dim")))
    confidence = f", confidence {filled.candidates[0].confidence:.2f}" if filled.candidates else ""
    console.print(Text(stats_line(filled.stats) + confidence, style="dim"))


def stats_line(stats: Stats) -> str:
    """Returns the cost of an answer in words."""
    return f"{stats.ms:.0f} ms, {passes_of(stats)}, {stats.decoder_ms:.0f} ms of them in the decoder"


def passes_of(stats: Stats | Cost) -> str:
    """Returns how often the model ran over the gap, in words."""
    n_passes = stats.steps + stats.encoder_steps
    return f"{n_passes} {'pass' if n_passes == 1 else 'passes'}, {stats.steps} of the decoder"
