"""What one call of the trainer does: a recipe, its data, its run folder and how the work is spread."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from midspan_engine.tokens import Tokens
from midspan_engine.training.examples import ExampleMaker
from midspan_engine.training.recipe import Recipe
from midspan_engine.training.run_folder import Progressed


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What one call trains."""

    recipe: Recipe
    data: Path
    """Holds tokenizer.json, train.bin and held.bin."""
    run: Path
    start_from: Path | None = None
    """A checkpoint folder whose weights a new run begins with."""
    is_compiled: bool = True
    device: str = "cpu"
    """A device of torch; on an accelerator one process trains."""
    n_feeders: int = 0
    """Processes that draw rows ahead of the steps; 0 draws them between the steps, in an order that can be replayed."""
    clock: Literal["wall", "cpu"] = "wall"
    """What the minutes of a schedule are counted in: the time of the steps, or one process' CPU time in them."""
    stop_at: float | None = None
    """When to save and stop, by `time.monotonic`, whatever is left to do."""


def share_done(job: Job, done: Progressed) -> float:
    """Returns how much of a job's schedule is done, 1.0 or more for all of it."""
    schedule = job.recipe.schedule
    if schedule.minutes:
        return (done.cpu_seconds if job.clock == "cpu" else done.seconds) / (60 * schedule.minutes)
    return done.step / schedule.steps


def make_examples(job: Job, tokens: Tokens, split: str, seed: int) -> ExampleMaker:
    """Returns the rows of a split. Raises InputError when it is missing or too short."""
    recipe = job.recipe
    return ExampleMaker(
        tokens,
        job.data / f"{split}.bin",
        recipe.infill,
        n_tokens=recipe.data.row_tokens,
        n_canvases=recipe.data.canvases_per_row,
        n_slots=recipe.shape.canvas_length,
        blank_weight=recipe.schedule.blank_weight,
        seed=seed,
    )
