"""`midspan edit`: an edit of a stretch of a file, as a diff."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from midspan_server.configured import launch_of, refuse_secrets, user_settings, with_checkpoint, with_json
from midspan_server.presets import MEANINGS, PRESETS, PresetId
from midspan_server.revision import Revision
from midspan_server.revision_command import Form, serve
from midspan_server.source import parse_range, read_source, read_stream


@click.command("edit")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--range",
    "span",
    metavar="L:C-L:C",
    required=True,
    help="The selection, without the character at its end; lines and columns from 1.",
)
@click.option(
    "--preset",
    type=click.Choice([preset.id for preset in PRESETS]),
    help="; ".join(f"{name}: {meaning}" for name, meaning in MEANINGS.items()) + ".",
)
@click.option("--instruction", metavar="TEXT", help="What to change, for a checkpoint that follows instructions.")
@click.option(
    "--strength",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="S",
    help="Share written anew. Default: the preset's.",
)
@click.option("--apply/--diff", "apply", default=False, help="Change the file, or print a diff (the default).")
@with_json
@click.option("--watch", is_flag=True, help="Show the canvas at every denoising step, on stderr.")
@with_checkpoint
@click.option("--stdin", "from_stdin", is_flag=True, help="Read the unsaved text of FILE from stdin.")
def command(
    file: Path,
    span: str,
    preset: PresetId | None,
    instruction: str | None,
    strength: float | None,
    apply: bool,
    as_json: bool,
    watch: bool,
    checkpoint: Path | None,
    from_stdin: bool,
) -> None:
    """Edit what stands between two positions of FILE: fill it anew, touch it up, complete it.

    Give either --preset or --instruction. Prints a unified diff; nothing is changed without --apply. The exit status is
    0 for an answer, which may be silence with a reason, 2 for input that cannot be used, 1 for a failure of Midspan.
    """
    if (preset is None) == (instruction is None) or (instruction is not None and not instruction.strip()):
        raise click.UsageError("say what to do: give either --preset or --instruction")
    if apply and from_stdin:
        raise click.UsageError("unsaved text cannot be changed in the file; leave out --apply or --stdin")
    first, last = parse_range(span)
    loaded = user_settings()
    refuse_secrets(file, loaded)
    source = read_stream(file, sys.stdin.buffer) if from_stdin else read_source(file)
    start, end = sorted((source.offset(first), source.offset(last)))
    revision = Revision.of(source.text, preset, start, end, strength=strength, instruction=instruction or "")
    form = Form("midspan edit", as_json, apply, watch)
    serve(source, revision, form, launch_of(checkpoint, loaded), loaded.settings)
