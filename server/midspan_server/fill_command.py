"""`midspan fill`: one infill of a file, printed."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable
from pathlib import Path

import click
import msgspec
from rich.console import Console

from midspan_engine.protocol import Draft, Fill, Filled
from midspan_server.answer import json_answer, piped_answer, print_answer
from midspan_server.asking import fill_of
from midspan_server.configured import launch_of, refuse_secrets, user_settings, with_checkpoint, with_json
from midspan_server.context import context_at
from midspan_server.engine_client import EngineClient
from midspan_server.language import language_of
from midspan_server.launch import Launch
from midspan_server.settings import MAX_TOKENS, Settings
from midspan_server.source import Source, parse_position, read_source, read_stream
from midspan_server.text import snapshot
from midspan_server.watch import watching


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What the options of the command say about the fill."""

    n_candidates: int
    max_tokens: int | None
    """None takes the settings' value, doubled for several lines as in an editor."""
    multi_line: bool
    min_confidence: float
    deadline_ms: float | None
    seed: int
    watch: bool


@click.command("fill")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--at", metavar="LINE:COL", required=True, help="The gap: line and column, both counted from 1.")
@with_json
@click.option("--watch", is_flag=True, help="Show the canvas at every denoising step, on stderr.")
@click.option("-n", "n_candidates", type=click.IntRange(1, 8), default=1, metavar="N", help="How many alternatives.")
@click.option("--max-tokens", type=click.IntRange(1, MAX_TOKENS), metavar="N", help="Tokens of the longest gap.")
@click.option("--multi-line", is_flag=True, help="Let the gap hold line breaks.")
@click.option(
    "--min-confidence", type=click.FloatRange(0, 1), default=0.0, metavar="X", help="Drop what is below, 0-1."
)
@click.option("--deadline-ms", type=click.FloatRange(1), metavar="MS", help="Take the best draft after so long.")
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=0, metavar="N", help="Same seed, same answer.")
@with_checkpoint
@click.option("--stdin", "from_stdin", is_flag=True, help="Read the unsaved text of FILE from stdin.")
def command(file: Path, at: str, as_json: bool, checkpoint: Path | None, from_stdin: bool, **wish: object) -> None:
    """Fill the gap at LINE:COL of FILE and print what was found.

    On a terminal the lines around the gap are shown; into a pipe goes the text alone. The exit status is 0 for an
    answer, which may be silence with a reason, 2 for input that cannot be used, 1 for a failure of Midspan.
    """
    wished = msgspec.convert(wish, Wish)
    position = parse_position(at)
    loaded = user_settings()
    refuse_secrets(file, loaded)
    source = read_stream(file, sys.stdin.buffer) if from_stdin else read_source(file)
    offset = source.offset(position)
    request = request_of(source, offset, wished, loaded.settings)
    filled = _ask(launch_of(checkpoint, loaded), request)
    if as_json:
        click.echo(json_answer(filled, source))
    elif sys.stdout.isatty():
        print_answer(Console(highlight=False), filled, source, offset)
    else:
        click.echo(piped_answer(filled, source), nl=False)
        if not filled.candidates:
            click.echo(f"midspan: no suggestion: {filled.silence}", err=True)


def request_of(source: Source, offset: int, wish: Wish, settings: Settings) -> Fill:
    """Returns the request that an editor would send at this place, changed by what the options say.

    Raises InputError for a line that is too long.
    """
    language = language_of(source.path, source.text)
    context = context_at(snapshot(source.text), offset, "invoked", language=language)
    request = fill_of(context, source.path.absolute().as_uri(), settings, multi_line=wish.multi_line)
    return msgspec.structs.replace(
        request,
        max_tokens=wish.max_tokens or request.max_tokens,
        n_candidates=wish.n_candidates,
        min_confidence=wish.min_confidence,
        deadline_ms=wish.deadline_ms,
        seed=wish.seed,
        watch=wish.watch,
    )


def _ask(launch: Launch, request: Fill) -> Filled:
    """Returns the engine's answer, with something to look at on stderr until it comes."""
    console = Console(stderr=True)
    if request.watch:
        with watching(console) as show:
            return asyncio.run(ask_engine(launch, request, show))
    # A first fill waits for the model to be loaded.
    with console.status("waiting for the engine") if console.is_terminal else contextlib.nullcontext():
        return asyncio.run(ask_engine(launch, request))


async def ask_engine(launch: Launch, request: Fill, on_draft: Callable[[Draft], None] | None = None) -> Filled:
    """Returns the answer of the engine of a launch, which is started if none runs."""
    async with EngineClient(launch, name="midspan fill") as client:
        return await client.fill(request, on_draft)
