"""The training loop of one process of a run: steps, saves, a progress bar and a curve.

The processes see different rows and hold the same weights after every step.
"""

from __future__ import annotations

import json
import math
import os
import signal
import time
from pathlib import Path

import msgspec
import torch
import torch.distributed as dist

from midspan_engine.config import load_model_config
from midspan_engine.models.diffusion_gemma import DiffusionGemma
from midspan_engine.tokens import Tokens
from midspan_engine.training.examples import ExampleMaker
from midspan_engine.training.initial import initialise
from midspan_engine.training.losses import Losses, causal_loss, infill_losses
from midspan_engine.training.meter import Meter
from midspan_engine.training.optimiser import Optimiser
from midspan_engine.training.recipe import Recipe, Schedule
from midspan_engine.training.run_folder import RunFolder, put, read_weights
from midspan_engine.weights import SINGLE_FILE

SAVE_SECONDS = 240.0
"""A killed run loses at most these."""
EVAL_STEPS = 50
HELD_ROWS = 8
MAX_GRADIENT_NORM = 1.0
SEED_STRIDE = 1_000_003
"""Seeds of the processes lie further apart than any run has steps; a resumed run adds its step."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What one call trains."""

    recipe: Recipe
    data: Path
    """Holds tokenizer.json, train.bin and held.bin."""
    run: Path
    start_from: Path | None = None
    """A checkpoint folder whose weights a new run begins with."""
    is_compiled: bool = True


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
        seed=seed,
    )


def learning_rate_factor(step: int, schedule: Schedule) -> float:
    """Returns the factor of the learning rates at a step: linear warm-up, constant, linear decay to a tenth."""
    left = (schedule.steps - step) / max(1.0, schedule.decay_share * schedule.steps)
    return min(1.0, (step + 1) / schedule.warmup_steps, 0.1 + 0.9 * max(0.0, left))


def run_process(rank: int, n_processes: int, port: int, job: Job) -> None:
    """Runs one process' part of a job, in a process of its own that meets the others at the local port."""
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=n_processes)
    _Run(rank, n_processes, job).go()
    dist.destroy_process_group()


class _Run:
    """One process' part of a run."""

    def __init__(self, rank: int, n_processes: int, job: Job) -> None:
        self.is_stopped = False
        signal.signal(signal.SIGTERM, self._ask_to_stop)
        signal.signal(signal.SIGINT, self._ask_to_stop)
        self.rank, self.n_processes, self.job = rank, n_processes, job
        self.folder = RunFolder(job.run)
        self.tokens = Tokens.load(job.data / "tokenizer.json")
        self.bos = self.tokens.bos_token_id or 0
        self.model = DiffusionGemma(load_model_config(self.folder.checkpoint))
        self.optimiser = Optimiser(self.model, job.recipe.schedule)
        self.done = self.folder.progress()
        torch.manual_seed(job.recipe.seed)
        if self.done.step > 0:
            self.average = self.folder.load_weights(self.model)
            self.optimiser.load_states(self.folder.states())
        else:
            initialise(self.model)
            if job.start_from is not None:
                put(self.model, read_weights(job.start_from / SINGLE_FILE, self.model))
            self.average = self._weights()
        # nobody overwrites a file that another process still reads
        dist.barrier()
        seed = job.recipe.seed + SEED_STRIDE * rank + self.done.step
        self.examples = make_examples(job, self.tokens, "train", seed)
        self.held = make_examples(job, self.tokens, "held", 1).batch(HELD_ROWS) if rank == 0 else None
        self.causal = torch.compile(causal_loss, dynamic=False) if job.is_compiled else causal_loss
        self.infill = torch.compile(infill_losses, dynamic=False) if job.is_compiled else infill_losses

    def go(self) -> None:
        """Trains to the end of the schedule, or until a signal asks to stop, and saves."""
        n_steps = self.job.recipe.schedule.steps
        before, started = self.done.seconds, time.monotonic()
        saved = started
        with Meter(n_steps, self.done.step, is_shown=self.rank == 0) as meter:
            while self.done.step < n_steps:
                is_stopped, is_due = self._agree(time.monotonic() - saved > SAVE_SECONDS)
                if is_due:
                    self._save()
                    saved = time.monotonic()
                if is_stopped:
                    break
                losses = self._step()
                self.done.seconds = before + time.monotonic() - started
                if self.rank == 0 and (self.done.step % EVAL_STEPS == 0 or self.done.step == n_steps):
                    self._record(losses)
                meter.show(self.done.step, losses)
        self._save()

    def _ask_to_stop(self, *_: object) -> None:
        self.is_stopped = True

    def _agree(self, is_due: bool) -> tuple[bool, bool]:
        """Returns whether any process was asked to stop, and whether the first one's clock says to save.

        Were each to go by its own clock, one could wait at the barrier of a save that the other does not make.
        """
        flags = torch.tensor([float(self.is_stopped), float(is_due and self.rank == 0)])
        dist.all_reduce(flags)
        stopped, due = flags.tolist()
        return stopped > 0, due > 0

    def _step(self) -> dict[str, float]:
        schedule, data = self.job.recipe.schedule, self.job.recipe.data
        is_causal = not self.done.has_canvases and self.done.step < schedule.causal_share * schedule.steps
        n_rows = data.causal_rows_per_step if is_causal else data.infill_rows_per_step
        positions = n_rows * data.row_tokens
        n_rows //= self.n_processes
        with torch.autocast("cpu", torch.bfloat16):
            if is_causal:
                total = self.causal(self.model, self.examples.rows(n_rows), self.bos)
                losses = {"causal": total.item()}
            else:
                batch = self.examples.batch(n_rows)
                again = (self.done.step * schedule.self_conditioning_share) % 1 >= 1 - schedule.self_conditioning_share
                found = self.infill(self.model, batch, self.bos, self_conditioned=again)
                total = found.causal + schedule.quoted_weight * found.quoted + schedule.canvas_weight * found.canvas
                losses = _numbers(found)
                positions += (batch.canvas_BC.numel() + batch.quoted_BS.numel()) * self.n_processes
        if not math.isfinite(total.item()):
            raise FloatingPointError(f"the loss at step {self.done.step} is {total.item()}: lower the learning rates")
        torch.autograd.backward(total)
        self.optimiser.step(learning_rate_factor(self.done.step, schedule), MAX_GRADIENT_NORM)
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                self.average[name].lerp_(parameter, 1 - schedule.average_decay)
        self.done.step += 1
        self.done.positions += positions
        self.done.has_canvases = not is_causal
        return losses

    def _record(self, losses: dict[str, float]) -> None:
        """Measures the averaged weights on held-out rows and appends a point to the curve."""
        assert self.held is not None, "the first process holds the held-out rows"
        own = self._weights()
        put(self.model, self.average)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            held = infill_losses(self.model, self.held, self.bos, self_conditioned=False)
        put(self.model, own)
        point = {
            "step": self.done.step,
            "positions": self.done.positions,
            "seconds": round(self.done.seconds, 1),
            "train": losses,
            "held": _numbers(held),
        }
        with self.folder.curve.open("a") as curve:
            curve.write(json.dumps(point) + "\n")

    def _weights(self) -> dict[str, torch.Tensor]:
        return {name: parameter.detach().clone() for name, parameter in self.model.named_parameters()}

    def _save(self) -> None:
        self.folder.save_state(self.rank, self.optimiser.state())
        if self.rank == 0:
            self.folder.save(self.model, self.average, self.done, self.n_processes)
        dist.barrier()


def _numbers(losses: Losses) -> dict[str, float]:
    return {name: loss.item() for name, loss in losses._asdict().items()}
