"""`midspan train compare`: recipes trained for equal times, as a table or JSON."""

from __future__ import annotations

import os
from pathlib import Path

import click
import msgspec

from midspan_engine.training.compare import Comparison, Outcome, Plan, Stopped, as_markdown
from midspan_engine.training.compare import compare as outcomes_of
from midspan_engine.training.corpus import cache_folder
from midspan_engine.training.prepare import packed_folder, prepare
from midspan_engine.training.recipe import Recipe, ablations, load_recipe
from midspan_engine.training.run_command import compiles, processes_for, renice

_INTERRUPTED = 130
"""128 + SIGINT, as shells report it."""
_FOLDER = click.Path(path_type=Path, file_okay=False)
MINUTES = 20.0
"""Chosen: the fifteen variants that ship take five hours then, and what compiling them takes."""


@click.command(name="compare", short_help="Train recipes for equal times; a table.")
@click.argument("recipes", nargs=-1)
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    default=MINUTES,
    show_default=True,
    help="CPU time of a recipe's steps in each process.",
)
@click.option("--data", type=_FOLDER, help="Folder of packed tokens for all.  [default: made for each vocabulary]")
@click.option("--runs", type=_FOLDER, help="Folder of the runs.  [default: runs/compare-MINUTES in the cache folder]")
@click.option("--processes", type=click.IntRange(min=1), help="Processes of one thread.  [default: one a core]")
@click.option("--nice", type=click.IntRange(-20, 19), default=19, show_default=True, help="Scheduling priority.")
@click.option("--eager", is_flag=True, help="Do not compile: starts at once, runs several times slower.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table in Markdown.")
def compare(
    recipes: tuple[str, ...],
    minutes: float,
    data: Path | None,
    runs: Path | None,
    processes: int | None,
    nice: int,
    eager: bool,
    as_json: bool,
) -> None:
    """Train RECIPES for equal CPU times and compare their held-out losses.

    By default the variants that ship, which differ in one thing each. What failed does not stop the others; the same
    command goes on where it was stopped and trains only what is not done.
    """
    renice(nice)
    cache = cache_folder()

    def data_for(recipe: Recipe) -> Path:
        if data is not None:
            return packed_folder(data)
        return prepare(cache, n_ids=recipe.data.vocabulary, n_processes=os.cpu_count() or 1)

    names = recipes or tuple(ablations())
    n_processes = min(processes_for(load_recipe(name).data, processes) for name in names)
    plan = Plan(
        minutes=minutes,
        folder=runs or cache / "runs" / f"compare-{minutes:g}",
        data_for=data_for,
        n_processes_for=lambda recipe: n_processes,
        is_compiled=not eager and compiles(),
    )
    found: list[Outcome] = []
    try:
        for outcome in outcomes_of(names, plan):
            found.append(outcome)
            click.echo(f"{outcome.recipe}: {outcome.error or 'done'}", err=True)
    except Stopped:
        click.echo("Stopped; the same command goes on from there", err=True)
    comparison = Comparison(minutes, n_processes, found)
    table = as_markdown(comparison)
    click.echo(msgspec.json.format(msgspec.json.encode(comparison)).decode() if as_json else table, nl=as_json)
    plan.folder.mkdir(parents=True, exist_ok=True)
    (plan.folder / "comparison.md").write_text(table)
    if len(found) < len(names):
        click.get_current_context().exit(_INTERRUPTED)
