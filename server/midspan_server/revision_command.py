"""What `midspan edit` and `midspan fill --holes` share: an answer as a diff, as JSON, or written into the file."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.text import Text

from midspan_engine.errors import InputError
from midspan_server.answer import stats_line
from midspan_server.context import context_at
from midspan_server.excerpt import visible
from midspan_server.holes import NO_HOLES, find_holes
from midspan_server.language import language_of
from midspan_server.launch import Launch
from midspan_server.one_question import ask
from midspan_server.patch import base_of, changed, diff_of
from midspan_server.revision import Answer, Revision, outcome_of, request_of
from midspan_server.rewrite import rewrite
from midspan_server.settings import Settings
from midspan_server.silence import Cost
from midspan_server.source import Source, parse_range
from midspan_server.text import snapshot

_STYLES = {"+": "green", "-": "red", "@": "cyan"}


class JsonChange(msgspec.Struct, frozen=True):
    """Replaces the text between two positions, both counted from 1, the column in characters."""

    start: tuple[int, int]
    end: tuple[int, int]
    text: str


class JsonRevision(msgspec.Struct, frozen=True):
    """What `--json` prints."""

    changes: list[JsonChange]
    confidence: float | None
    silence: str | None
    stats: Cost


class Form(msgspec.Struct, frozen=True):
    """Who asks, and what becomes of the answer."""

    command: str
    as_json: bool = False
    apply: bool = False
    watch: bool = False
    limits: dict[str, float] = {}
    """Fields of the request that the options set."""


def serve(source: Source, revision: Revision, form: Form, launch: Launch, settings: Settings) -> None:
    """Asks the engine and prints or applies what it answers."""
    answer = answer_of(source, revision, form, launch, settings)
    if form.apply and answer.changes:
        rewrite(source.path, source.written.encode(), changed(source, answer.changes).encode())
    if form.as_json:
        click.echo(_json(source, answer))
    elif answer.silence is not None:
        click.echo(f"midspan: no change: {answer.silence}", err=True)
    elif form.apply:
        n = len(answer.changes)
        click.echo(f"midspan: made {n} {'change' if n == 1 else 'changes'} in {source.path}", err=True)
    else:
        _print_diff(source, answer)
    if answer.message is not None and not form.as_json:
        click.echo(f"midspan: {answer.message}", err=True)


def holes_of(source: Source, span: str | None, marker: str) -> Revision:
    """Returns the holes of a source, between two positions if they are given. Raises InputError when there are none."""
    start, end = 0, len(source.text)
    if span is not None:
        start, end = sorted(source.offset(each) for each in parse_range(span))
    found = find_holes(source.text, start, end, marker, language_of(source.path, source.text))
    if not found:
        raise InputError(NO_HOLES.format(marker=marker))
    return Revision.of_holes(source.text, found)


def answer_of(source: Source, revision: Revision, form: Form, launch: Launch, settings: Settings) -> Answer:
    """Returns the changes that the engine's answer comes to."""
    text, language = snapshot(source.text), language_of(source.path, source.text)
    first, last = (context_at(text, at, "invoked", language=language) for at in revision.ends)
    request = request_of(revision, first, last, source.path.absolute().as_uri(), settings)
    filled = ask(launch, msgspec.structs.replace(request, watch=form.watch, **form.limits), form.command)
    return outcome_of(revision, filled, first)


def _json(source: Source, answer: Answer) -> bytes:
    def place(offset: int) -> tuple[int, int]:
        start = source.text.rfind("\n", 0, offset) + 1
        return source.text.count("\n", 0, offset) + 1, offset - start + 1

    changes = [JsonChange(place(each.start), place(each.end), source.to_file(each.text)) for each in answer.changes]
    confidence = round(answer.filled.candidates[0].confidence, 3) if changes else None
    return msgspec.json.encode(JsonRevision(changes, confidence, answer.silence, Cost.of(answer.filled.stats)))


def _print_diff(source: Source, answer: Answer) -> None:
    lines = diff_of(source, answer.changes)
    if (base := base_of(source.path)) != Path.cwd():
        click.echo(f"midspan: the names in the diff start in {base}; apply it there", err=True)
    if not sys.stdout.isatty():
        click.echo("".join(lines).encode(), nl=False)
        return
    console = Console(highlight=False)
    for line in lines:
        console.print(Text(visible(line.rstrip("\r\n")), style=_STYLES.get(line[0], "")), soft_wrap=True)
    console.print(Text(stats_line(answer.filled.stats), style="dim"))
