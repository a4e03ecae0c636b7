"""`midspan train RECIPE`: prepares the data, trains, and says how to use what came out."""

from __future__ import annotations

import os
from pathlib import Path

import click
import msgspec

from midspan_engine.errors import InputError
from midspan_engine.training.corpus import cache_folder
from midspan_engine.training.launch import can_compile, train
from midspan_engine.training.model_card import write_model_card
from midspan_engine.training.prepare import is_packed, prepare, read_reports
from midspan_engine.training.recipe import Data, Recipe, load_recipe
from midspan_engine.training.run_folder import RunFolder
from midspan_engine.training.trainer import Job

_INTERRUPTED = 130
"""128 + SIGINT, as shells report it."""
_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)
_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command(name="train")
@click.argument("recipe")
@click.option("--data", type=_FOLDER, help="Folder of packed tokens.  [default: made from the listed packages]")
@click.option("--run", type=_FOLDER, help="Folder of the run.  [default: runs/RECIPE in the user's cache folder]")
@click.option("--steps", type=click.IntRange(min=1), help="Steps in all, in place of the recipe's; on resume too.")
@click.option("--processes", type=click.IntRange(min=1), help="Processes of one thread.  [default: one a core]")
@click.option("--from", "start_from", type=_FOLDER, help="Checkpoint whose weights a new run begins with.")
@click.option("--evaluation", type=_FILE, help="Output of `midspan eval --json`, for the model card.")
@click.option("--prepare-only", is_flag=True, help="Prepare the data and stop.")
@click.option("--nice", type=click.IntRange(-20, 19), default=19, show_default=True, help="Scheduling priority.")
@click.option("--eager", is_flag=True, help="Do not compile: starts at once, runs several times slower.")
def command(
    recipe: str,
    data: Path | None,
    run: Path | None,
    steps: int | None,
    processes: int | None,
    start_from: Path | None,
    evaluation: Path | None,
    prepare_only: bool,
    nice: int,
    eager: bool,
) -> None:
    """Trains RECIPE, a recipe that ships (python-small) or the path of a .toml file.

    Downloads and packs the data when it is missing. A run that was stopped goes on from its last save, at most four
    minutes back, when the same command is given again.
    """
    loaded = _with_steps(load_recipe(recipe), steps)
    n_processes = _processes(loaded.data, processes)
    _renice(nice)
    cache = cache_folder()
    tokenizer = None if start_from is None else _tokenizer(start_from)
    packed = _packed(data) if data else prepare(cache, n_processes=os.cpu_count() or 1, tokenizer=tokenizer)
    if prepare_only:
        click.echo(f"The data is ready in {packed}")
        return
    is_compiled = not eager
    if is_compiled and not can_compile():
        is_compiled = False
        click.echo(
            "No C++ compiler with Python's headers found (Debian: g++, python3-dev): training without, much slower"
        )
    folder = RunFolder(run or cache / "runs" / Path(recipe).stem)
    with folder.locked():
        _announce(folder, loaded, start_from)
        job = Job(recipe=loaded, data=packed, run=folder.path, start_from=start_from, is_compiled=is_compiled)
        is_done = folder.progress().step >= loaded.schedule.steps or train(job, n_processes)
        step = folder.progress().step
        if data is None and step > 0:
            write_model_card(folder, read_reports(cache / "corpus"), evaluation, loaded.notes)
    if step > 0:
        click.echo(f"The checkpoint is in {folder.checkpoint}")
        click.echo(f"Use it: midspan fill FILE --at LINE:COL --checkpoint {folder.checkpoint}")
    if not is_done:
        click.echo(f"Stopped at step {step}; the same command goes on from there")
        click.get_current_context().exit(_INTERRUPTED)


def _with_steps(recipe: Recipe, steps: int | None) -> Recipe:
    if steps is None:
        return recipe
    return msgspec.structs.replace(recipe, schedule=msgspec.structs.replace(recipe.schedule, steps=steps))


def _processes(data: Data, wanted: int | None) -> int:
    """Returns how many processes share the rows of a step; each must get the same number of them."""
    shared = [n for n in range(1, data.infill_rows_per_step + 1) if _divides(n, data)]
    if wanted is None:
        return max(n for n in shared if n <= (os.cpu_count() or 1))
    if wanted not in shared:
        raise InputError(f"the recipe's rows of a step can be shared by {', '.join(map(str, shared))} processes only")
    return wanted


def _divides(n: int, data: Data) -> bool:
    return data.causal_rows_per_step % n == 0 and data.infill_rows_per_step % n == 0


def _renice(nice: int) -> None:
    if os.getpriority(os.PRIO_PROCESS, 0) >= nice > 0:
        return
    try:
        os.setpriority(os.PRIO_PROCESS, 0, nice)
    except PermissionError as error:
        raise InputError(f"this user may not raise the priority to --nice {nice}: leave the option out") from error


def _tokenizer(checkpoint: Path) -> Path:
    for name in ("model.safetensors", "tokenizer.json"):
        if not (checkpoint / name).is_file():
            raise InputError(f"{checkpoint} is no checkpoint to train on: it has no {name}")
    return checkpoint / "tokenizer.json"


def _packed(folder: Path) -> Path:
    if not is_packed(folder):
        raise InputError(
            f"{folder} does not hold train.bin, held.bin and tokenizer.json: leave --data out to have them made"
        )
    return folder


def _announce(folder: RunFolder, recipe: Recipe, start_from: Path | None) -> None:
    step = folder.progress().step
    if step and start_from is not None:
        raise InputError(
            f"{folder.path} has a run already, which --from cannot begin: leave it out, or give another --run"
        )
    if step >= recipe.schedule.steps:
        click.echo(f"All {recipe.schedule.steps} steps are done; --steps with a larger number goes on")
        return
    what = f"Going on from step {step}" if step else "Beginning a run"
    click.echo(f"{what} of {recipe.schedule.steps} steps in {folder.path}; Ctrl-C saves and stops")
