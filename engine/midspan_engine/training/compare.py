"""Recipes trained for equal CPU times, one after the other, and what came of them.

The time of a recipe is what one of its processes spends in the steps, by the CPU's clock: neither compiling and saving
nor other work on the machine counts. Its learning rates and phases follow that clock, so each run ends as a whole one
does. What is done is kept: the same call goes on where an earlier one was stopped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from midspan_engine.config import load_model_config
from midspan_engine.errors import InputError, MidspanError
from midspan_engine.models.diffusion_gemma import DiffusionGemma
from midspan_engine.training.job import Job
from midspan_engine.training.launch import train
from midspan_engine.training.measure import HeldOut, Loss, measure
from midspan_engine.training.recipe import Recipe, load_recipe, title
from midspan_engine.training.run_folder import RunFolder

logger = logging.getLogger(__name__)

_COLUMNS = ("causal", "quoted", "canvas")


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one recipe."""

    recipe: str
    n_weights: int = 0
    steps: int = 0
    positions: int = 0
    cpu_seconds: float = 0.0
    held: HeldOut | None = None
    error: str = ""
    """Why there is nothing else; empty for a recipe that was trained."""

    @property
    def positions_per_second(self) -> float:
        """Of all processes, by the CPU time of one."""
        return self.positions / self.cpu_seconds if self.cpu_seconds else 0.0


class Comparison(msgspec.Struct, frozen=True):
    """The outcomes of one call; the JSON of `midspan train compare`."""

    minutes: float
    n_processes: int
    outcomes: list[Outcome]


class Stopped(Exception):
    """A run was asked to stop before it was done."""


class Plan(msgspec.Struct, frozen=True):
    """How every recipe of a comparison is trained."""

    minutes: float
    folder: Path
    """Holds a run's folder for each recipe."""
    data_for: Callable[[Recipe], Path]
    n_processes_for: Callable[[Recipe], int]
    is_compiled: bool


def compare(names: Sequence[str], plan: Plan) -> Iterator[Outcome]:
    """Yields the outcome of each recipe when it is known; what failed is told and tried again by the next call.

    Raises InputError, before anything is trained, for a recipe that cannot be read or two of one name, and Stopped.
    """
    recipes = {name: load_recipe(name) for name in names}
    titles = [title(name) for name in recipes]
    if len(set(titles)) < len(titles):
        raise InputError(f"two recipes have the same name, which is that of their folders too: {', '.join(titles)}")
    for name, recipe in recipes.items():
        try:
            yield _outcome(name, recipe, plan)
        # the one catch-all of this loop: a night's other recipes are still trained
        except Exception as error:
            if isinstance(error, Stopped):
                raise
            logger.warning("%s failed: %s", name, error)
            message = str(error) if isinstance(error, MidspanError) else f"{type(error).__name__}: {error}"
            yield Outcome(recipe=title(name), error=message.splitlines()[0])


def _outcome(name: str, recipe: Recipe, plan: Plan) -> Outcome:
    schedule = msgspec.structs.replace(recipe.schedule, steps=0, minutes=plan.minutes)
    timed = msgspec.structs.replace(recipe, schedule=schedule)
    run = plan.folder / title(name)
    folder = RunFolder(run)
    with folder.locked():
        kept, described = run / "outcome.json", msgspec.json.encode(timed)
        if folder.progress().step and (run / "recipe.json").read_bytes() != described:
            raise InputError(f"{run} holds a run of another recipe of this name: delete it, or give another --runs")
        if kept.exists():
            return msgspec.json.decode(kept.read_bytes(), type=Outcome)
        (run / "recipe.json").write_bytes(described)
        job = Job(recipe=timed, data=plan.data_for(timed), run=run, is_compiled=plan.is_compiled, clock="cpu")
        if not train(job, plan.n_processes_for(timed)):
            raise Stopped
        done = folder.progress()
        outcome = Outcome(
            recipe=title(name),
            n_weights=DiffusionGemma(load_model_config(folder.checkpoint)).n_weights,
            steps=done.step,
            positions=done.positions,
            cpu_seconds=done.cpu_seconds,
            held=measure(job),
        )
        kept.write_bytes(msgspec.json.encode(outcome))
        folder.drop_state()
        return outcome


def as_markdown(comparison: Comparison) -> str:
    """Returns the outcomes as a table: held-out nats a token and, in brackets, a character."""
    lines = [
        f"Held-out nats a token (a character) after {comparison.minutes:g} CPU minutes in each of "
        f"{comparison.n_processes} processes:",
        "",
        "| recipe | million weights | steps | million positions | positions/s | next token | quoted | canvas |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for one in comparison.outcomes:
        if one.held is None:
            lines.append(f"| {one.recipe} | failed: {one.error.replace('|', '/')} |" + " |" * 6)
            continue
        losses = (_spelled(getattr(one.held, column)) for column in _COLUMNS)
        figures = (f"{one.n_weights / 1e6:.1f}", f"{one.steps}", f"{one.positions / 1e6:.2f}")
        speed = f"{one.positions_per_second:.0f}"
        lines.append(f"| {' | '.join((one.recipe, *figures, speed, *losses))} |")
    return "\n".join(lines) + "\n"


def _spelled(loss: Loss) -> str:
    return f"{loss.token:.3f} ({loss.character:.3f})"
