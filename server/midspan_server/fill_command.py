"""`midspan fill`: one infill of a file, printed."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec
from rich.console import Console

from midspan_engine.protocol import Fill
from midspan_server.answer import json_answer, piped_answer, print_answer
from midspan_server.asking import fill_of
from midspan_server.configured import launch_of, refuse_secrets, user_settings, with_checkpoint, with_json
from midspan_server.context import Context, context_at
from midspan_server.language import language_of
from midspan_server.one_question import ask
from midspan_server.revision_command import Form, holes_of, serve
from midspan_server.settings import MAX_TOKENS, Settings
from midspan_server.sieve import passing
from midspan_server.source import parse_position, read_source, read_stream
from midspan_server.text import snapshot


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What the options of the command say about the fill."""

    n_candidates: int
    max_tokens: int | None
    """None takes the settings' value, doubled for several lines as in an editor; for holes, what each may need."""
    multi_line: bool
    min_confidence: float | None
    """None shows everything; of holes, what the settings ask for."""
    deadline_ms: float | None
    seed: int
    watch: bool

    def limits(self) -> dict[str, float]:
        """Returns the fields of a request for holes that an option sets."""
        limits = {"max_tokens": self.max_tokens, "min_confidence": self.min_confidence, "deadline_ms": self.deadline_ms}
        return {name: value for name, value in limits.items() if value is not None} | {"seed": self.seed}


@click.command("fill")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--at", metavar="LINE:COL", help="The gap: line and column, both counted from 1. Give this or --holes.")
@click.option(
    "--holes",
    is_flag=True,
    help="Fill empty calls, stubs and markers instead, and print the difference. An empty call counts as a hole even "
    "where it is right; narrow with --range.",
)
@click.option(
    "--range",
    "span",
    metavar="L:C-L:C",
    help="Where to look for holes, without the character at its end; everywhere by default.",
)
@click.option("--marker", metavar="TEXT", help="What stands for a hole. Default: the setting `hole_marker`.")
@click.option("--apply", is_flag=True, help="With --holes: change the file.")
@with_json
@click.option("--watch", is_flag=True, help="Show the canvas at every denoising step, on stderr.")
@click.option(
    "-n",
    "n_candidates",
    type=click.IntRange(1, 8),
    default=1,
    metavar="N",
    help="Number of alternatives.",
    show_default=True,
)
@click.option(
    "--max-tokens",
    type=click.IntRange(1, MAX_TOKENS),
    metavar="N",
    help="Longest text. Default: the setting `max_tokens`.",
)
@click.option("--multi-line", is_flag=True, help="Let the gap hold line breaks.")
@click.option(
    "--min-confidence",
    type=click.FloatRange(0, 1),
    metavar="X",
    help="Drop what is below. Default: 0; with --holes, the setting.",
)
@click.option(
    "--deadline-ms", type=click.FloatRange(1), metavar="MS", help="Take the best draft after so long. Default: wait."
)
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=0, metavar="N", help="Same seed, same answer.")
@with_checkpoint
@click.option("--stdin", "from_stdin", is_flag=True, help="Read the unsaved text of FILE from stdin.")
def command(
    file: Path,
    at: str | None,
    holes: bool,
    span: str | None,
    marker: str | None,
    apply: bool,
    as_json: bool,
    checkpoint: Path | None,
    from_stdin: bool,
    **wish: object,
) -> None:
    """Fill the gap at LINE:COL of FILE, or its holes, and print what was found.

    On a terminal the lines around the gap are shown; into a pipe goes the text alone. Prints every answer, however
    doubtful; editors show less (--min-confidence). What the editors' filters would mend or drop, such as a bracket that
    is closed twice, is mended or dropped here too. The exit status is 0 for an answer, which may be silence with a
    reason, 2 for input that cannot be used, 1 for a failure of Midspan.
    """
    wished = msgspec.convert(wish, Wish)
    if holes == (at is not None) or (not holes and (span or marker or apply)):
        raise click.UsageError("say which gap: give --at, or --holes, which alone takes --range, --marker and --apply")
    if holes and (wished.n_candidates > 1 or wished.multi_line):
        raise click.UsageError(
            "a hole has one filling, with the lines that its place allows; leave out -n, --multi-line"
        )
    if apply and from_stdin:
        raise click.UsageError("unsaved text cannot be changed in the file; leave out --apply or --stdin")
    position = parse_position(at) if at is not None else None
    loaded = user_settings()
    refuse_secrets(file, loaded)
    source = read_stream(file, sys.stdin.buffer) if from_stdin else read_source(file)
    if position is None:
        revision = holes_of(source, span, marker or loaded.settings.hole_marker)
        form = Form("midspan fill", as_json, apply, wished.watch, wished.limits())
        serve(source, revision, form, launch_of(checkpoint, loaded), loaded.settings)
        return
    offset = source.offset(position)
    language = language_of(source.path, source.text)
    context = context_at(snapshot(source.text), offset, "invoked", language=language)
    request = request_of(source.path, context, wished, loaded.settings)
    filled = passing(ask(launch_of(checkpoint, loaded), request, "midspan fill"), context)
    if as_json:
        click.echo(json_answer(filled, source))
    elif sys.stdout.isatty():
        print_answer(Console(highlight=False), filled, source, offset)
    else:
        click.echo(piped_answer(filled, source), nl=False)
        if not filled.candidates:
            click.echo(f"midspan: no suggestion: {filled.silence}", err=True)


def request_of(path: Path, context: Context, wish: Wish, settings: Settings) -> Fill:
    """Returns the request that an editor would send at this place of a file, changed by what the options say."""
    request = fill_of(context, path.absolute().as_uri(), settings, multi_line=wish.multi_line)
    return msgspec.structs.replace(
        request,
        max_tokens=wish.max_tokens or request.max_tokens,
        n_candidates=wish.n_candidates,
        min_confidence=wish.min_confidence or 0.0,
        deadline_ms=wish.deadline_ms,
        seed=wish.seed,
        watch=wish.watch,
    )
