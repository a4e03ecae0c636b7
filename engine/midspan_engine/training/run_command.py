"""`midspan train RECIPE`: prepares the data, trains, and says how to use what came out."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click
import msgspec
import torch

from midspan_engine.errors import InputError
from midspan_engine.formats.safetensors_source import weight_files
from midspan_engine.training.archive import unpack_archive
from midspan_engine.training.corpus import cache_folder
from midspan_engine.training.job import Job, share_done
from midspan_engine.training.launch import can_compile, train
from midspan_engine.training.model_card import write_model_card
from midspan_engine.training.prepare import corpus_folder, is_packed, packed_folder, prepare, read_reports
from midspan_engine.training.recipe import Data, Recipe, Schedule, load_recipe, title
from midspan_engine.training.run_folder import RunFolder

_INTERRUPTED = 130
"""128 + SIGINT, as shells report it."""
_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)
_FOLDER = click.Path(path_type=Path, file_okay=False)
_PATH = click.Path(path_type=Path)
_MINUTES = click.FloatRange(min=0, min_open=True)
MAX_FEEDERS = 14
"""Processes that draw rows for an accelerator; each draws about 450 a second. Chosen."""


@click.command(hidden=True)
@click.argument("recipe")
@click.option("--data", type=_PATH, help="Packed tokens, a folder or a file.  [default: made from the listed packages]")
@click.option("--run", type=_FOLDER, help="Folder of the run.  [default: runs/RECIPE in the user's cache folder]")
@click.option("--steps", type=click.IntRange(min=1), help="Steps in all, in place of the recipe's; on resume too.")
@click.option("--minutes", type=_MINUTES, help="Minutes of training in all, in place of the recipe's length.")
@click.option("--stop-after", type=_MINUTES, help="Save and stop so many minutes after the start of this command.")
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, or another device of torch.")
@click.option("--processes", type=click.IntRange(min=1), help="Processes of one thread.  [default: one a core]")
@click.option("--from", "start_from", type=_FOLDER, help="Checkpoint whose weights a new run begins with.")
@click.option("--evaluation", type=_FILE, help="Output of `midspan eval --json`, for the model card.")
@click.option("--prepare-only", is_flag=True, help="Prepare the data and stop.")
@click.option("--nice", type=click.IntRange(-20, 19), default=19, show_default=True, help="Scheduling priority.")
@click.option("--eager", is_flag=True, help="Do not compile: starts at once, runs several times slower.")
def run(
    recipe: str,
    data: Path | None,
    run: Path | None,
    steps: int | None,
    minutes: float | None,
    stop_after: float | None,
    device: str,
    processes: int | None,
    start_from: Path | None,
    evaluation: Path | None,
    prepare_only: bool,
    nice: int,
    eager: bool,
) -> None:
    """Train RECIPE, a recipe that ships (python-small, python-medium) or the path of a .toml file.

    Downloads and packs the data when it is missing. A run that was stopped goes on from its last save, at most four
    minutes back, when the same command is given again.
    """
    started = time.monotonic()
    loaded = _with_length(load_recipe(recipe), steps, minutes)
    check_device(device)
    n_processes = processes_for(loaded.data, processes, device)
    renice(nice)
    folder = RunFolder(run or cache_folder() / "runs" / title(recipe))
    if data is None:
        tokenizer = None if start_from is None else _tokenizer(start_from)
        n_ids = loaded.data.vocabulary
        packed = prepare(cache_folder(), n_ids=n_ids, n_processes=os.cpu_count() or 1, tokenizer=tokenizer)
    else:
        if start_from is not None:
            _tokenizer(start_from)
        packed = _given(data, folder)
    if prepare_only:
        click.echo(f"The data is ready in {packed}")
        return
    job = Job(
        recipe=loaded,
        data=packed,
        run=folder.path,
        start_from=start_from,
        is_compiled=not eager and compiles(),
        device=device,
        n_feeders=0 if device == "cpu" else max(1, min(MAX_FEEDERS, (os.cpu_count() or 1) - 2)),
        stop_at=None if stop_after is None else started + 60 * stop_after,
    )
    with folder.locked():
        _announce(folder, job)
        is_done = share_done(job, folder.progress()) >= 1 or train(job, n_processes)
        step = folder.progress().step
        packages = corpus_folder(cache_folder()) if data is None else packed
        if step > 0 and (packages / "packages.json").is_file():
            write_model_card(folder, read_reports(packages), evaluation, loaded.notes)
    if step > 0:
        click.echo(f"The checkpoint is in {folder.checkpoint}")
        click.echo(f"Use it: midspan fill FILE --at LINE:COL --checkpoint {folder.checkpoint}")
    if not is_done:
        click.echo(f"Stopped at step {step}; the same command goes on from there")
        click.get_current_context().exit(_INTERRUPTED)


def check_device(device: str) -> None:
    """Raises InputError for a device that torch does not find."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # a torch without CUDA asserts
        raise InputError(f"--device {device} cannot be used: {str(error).splitlines()[0]}") from error


def processes_for(data: Data, wanted: int | None, device: str = "cpu") -> int:
    """Returns how many processes share the rows of a step; each must get the same number of them."""
    if device != "cpu":
        return 1
    shared = [n for n in range(1, data.infill_rows_per_step + 1) if _divides(n, data)]
    if wanted is None:
        return max(n for n in shared if n <= (os.cpu_count() or 1))
    if wanted not in shared:
        raise InputError(f"the recipe's rows of a step can be shared by {', '.join(map(str, shared))} processes only")
    return wanted


def renice(nice: int) -> None:
    """Lowers this process' priority. Raises InputError where it would be raised and the user may not."""
    if os.getpriority(os.PRIO_PROCESS, 0) >= nice > 0:
        return
    try:
        os.setpriority(os.PRIO_PROCESS, 0, nice)
    except PermissionError as error:
        raise InputError(f"this user may not raise the priority to --nice {nice}: leave the option out") from error


def compiles() -> bool:
    """Tells whether steps can be compiled, and tells the user where not."""
    if not can_compile():
        click.echo(
            "No C++ compiler with Python's headers found (Debian: g++, python3-dev): training without, much slower"
        )
        return False
    return True


def _with_length(recipe: Recipe, steps: int | None, minutes: float | None) -> Recipe:
    if steps is not None and minutes is not None:
        raise InputError("--steps and --minutes are two lengths of one run: give one of them")
    if steps is None and minutes is None:
        return recipe
    schedule = msgspec.structs.replace(recipe.schedule, steps=steps or 0, minutes=minutes or 0.0)
    return msgspec.structs.replace(recipe, schedule=schedule)


def _divides(n: int, data: Data) -> bool:
    return data.causal_rows_per_step % n == 0 and data.infill_rows_per_step % n == 0


def _tokenizer(checkpoint: Path) -> Path:
    """Returns the tokenizer of a checkpoint to train on. Raises CheckpointError or InputError when it is none."""
    weight_files(checkpoint)
    if not (checkpoint / "tokenizer.json").is_file():
        raise InputError(f"{checkpoint} is no checkpoint to train on: it has no tokenizer.json")
    return checkpoint / "tokenizer.json"


def _given(data: Path, folder: RunFolder) -> Path:
    """Returns the folder of the data that the user gave; a file is unpacked into the run's folder, once."""
    if not data.is_file():
        return packed_folder(data)
    unpacked = folder.path / "data"
    if not is_packed(unpacked):
        unpack_archive(data, unpacked)
    return packed_folder(unpacked)


def _announce(folder: RunFolder, job: Job) -> None:
    done = folder.progress()
    if done.step and job.start_from is not None:
        raise InputError(
            f"{folder.path} has a run already, which --from cannot begin: leave it out, or give another --run"
        )
    length = _length(job.recipe.schedule)
    if share_done(job, done) >= 1:
        click.echo(f"All {length} are done; --steps or --minutes with a larger number goes on")
        return
    what = f"Going on from step {done.step}" if done.step else "Beginning a run"
    click.echo(f"{what} of {length} in {folder.path}; Ctrl-C saves and stops")


def _length(schedule: Schedule) -> str:
    return f"{schedule.steps} steps" if schedule.steps else f"{schedule.minutes:g} minutes"
