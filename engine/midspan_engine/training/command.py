"""`midspan train RECIPE`, and beside it what prepares and compares runs."""

from __future__ import annotations

import os
from pathlib import Path

import click

from midspan_engine.commands import CONTEXT_SETTINGS
from midspan_engine.training.archive import ARCHIVE_BYTES, write_archive
from midspan_engine.training.compare_command import compare
from midspan_engine.training.corpus import cache_folder
from midspan_engine.training.prepare import corpus_folder, packed_folder, prepare
from midspan_engine.training.recipe import load_recipe
from midspan_engine.training.run_command import run

_RUN = "RECIPE"
"""The word by which a recipe's command goes in help and errors; nobody has to type it."""


class _Train(click.Group):
    """A group whose first word is a recipe unless it is one of the commands."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands.keys() - {_RUN}, *ctx.help_option_names):
            wants_help = any(name in args for name in ctx.help_option_names)
            args = ["--help"] if wants_help else [_RUN, *args]
        return super().parse_args(ctx, args)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, "RECIPE [OPTIONS] | COMMAND [ARGS]...")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.commands[_RUN].format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


@click.group(name="train", cls=_Train, context_settings=CONTEXT_SETTINGS, help=run.help)
def command() -> None:
    """Takes its help from the command that a recipe alone runs."""


@click.command(name="pack", short_help="Write the data to one file, to carry it.")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--recipe", default="python-small", show_default=True, help="Whose vocabulary is used.")
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), help="Folder of packed tokens to take.")
def pack(file: Path, recipe: str, data: Path | None) -> None:
    """Write packed data to FILE, at most 48 MiB, to carry it to another machine.

    There `midspan train RECIPE --data FILE` trains on it and needs no network. Takes some minutes.
    """
    cache, vocabulary = cache_folder(), load_recipe(recipe).data.vocabulary
    packed = packed_folder(data) if data else prepare(cache, n_ids=vocabulary, n_processes=os.cpu_count() or 1)
    files = {name: packed / name for name in ("tokenizer.json", "held.bin", "train.bin")}
    packages = (packed if data else corpus_folder(cache)) / "packages.json"
    if packages.is_file():
        files["packages.json"] = packages
    click.echo(f"Compressing {packed}")
    n_tokens = write_archive(files, file, max_bytes=ARCHIVE_BYTES)
    n_all = files["train.bin"].stat().st_size // 2
    click.echo(f"{file} takes {file.stat().st_size / 2**20:.1f} MiB and holds {n_tokens} of {n_all} tokens")


command.add_command(run, _RUN)
command.add_command(compare)
command.add_command(pack)
