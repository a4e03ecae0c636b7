"""The training loop of one process of a run: steps, saves, a progress bar and a curve.

The processes see different rows and hold the same weights after every step.
"""

from __future__ import annotations

import json
import math
import signal
import time
from collections.abc import Sequence
from typing import cast

import torch

from midspan_engine.config import load_model_config
from midspan_engine.models.diffusion_gemma import DiffusionGemma
from midspan_engine.models.layers import Layer
from midspan_engine.tokens import Tokens
from midspan_engine.training.examples import Batch
from midspan_engine.training.feeder import Feeder
from midspan_engine.training.initial import initialise
from midspan_engine.training.job import Job, make_examples, share_done
from midspan_engine.training.losses import Losses, causal_loss, infill_losses
from midspan_engine.training.meter import Meter
from midspan_engine.training.optimiser import Optimiser
from midspan_engine.training.peers import Peers, meet
from midspan_engine.training.recipe import Schedule
from midspan_engine.training.run_folder import RunFolder, put, read_weights

SAVE_SECONDS = 240.0
"""A killed run loses at most these."""
EVAL_STEPS = 50
HELD_ROWS = 8
MAX_GRADIENT_NORM = 1.0
SEED_STRIDE = 1_000_003
"""Seeds of the processes lie further apart than any run has steps; a resumed run adds its step."""


def learning_rate_factor(step: int, share: float, schedule: Schedule) -> float:
    """Returns the factor of the learning rates: linear warm-up over steps, constant, linear decay to a tenth.

    `step` is counted from where the optimiser's state began, `share` is that of the whole schedule.
    """
    left = (1 - share) / schedule.decay_share if schedule.decay_share else 1.0
    return min(1.0, (step + 1) / schedule.warmup_steps, 0.1 + 0.9 * max(0.0, left))


def run_process(rank: int, n_processes: int, port: int, job: Job) -> None:
    """Runs one process' part of a job, in a process of its own that meets the others at the local port."""
    torch.set_num_threads(1)
    with meet(rank, n_processes, port) as peers:
        run = _Run(peers, job)
        try:
            run.go()
        finally:
            run.close()


class _Run:
    """One process' part of a run."""

    def __init__(self, peers: Peers, job: Job) -> None:
        self.is_stopped = False
        signal.signal(signal.SIGTERM, self._ask_to_stop)
        signal.signal(signal.SIGINT, self._ask_to_stop)
        self.peers, self.job, self.device = peers, job, torch.device(job.device)
        self.folder = RunFolder(job.run)
        self.tokens = Tokens.load(job.data / "tokenizer.json")
        self.bos = self.tokens.bos_token_id or 0
        model = DiffusionGemma(load_model_config(self.folder.checkpoint))
        self.done = self.folder.progress()
        self.first_step = 0 if self.folder.has_state else self.done.step
        torch.manual_seed(job.recipe.seed)
        average = None
        if self.done.step > 0:
            average = self.folder.load_weights(model)
        else:
            initialise(model)
            if job.start_from is not None:
                put(model, read_weights(job.start_from, model))
        self.model = model.to(self.device)
        self.average = self._weights()
        self.optimiser = Optimiser(self.model, job.recipe.schedule, peers)
        if average is not None:
            self.average = {name: tensor.to(self.device) for name, tensor in average.items()}
            self.optimiser.load_states(self.folder.states())
        # nobody overwrites a file that another process still reads
        peers.wait()
        seed = job.recipe.seed + SEED_STRIDE * peers.rank + self.done.step
        self.examples = Feeder(job, seed) if job.n_feeders else make_examples(job, self.tokens, "train", seed)
        held = make_examples(job, self.tokens, "held", 1).batch(HELD_ROWS) if peers.rank == 0 else None
        self.held = None if held is None else held.to(self.device)
        self._compile()
        self.is_warm: set[tuple[bool, bool]] = set()

    def _compile(self) -> None:
        self.causal, self.infill = causal_loss, infill_losses
        if self.job.is_compiled:
            if self.job.recipe.shape.num_experts > 1:
                # how many rows an expert gets differs from step to step, and each number would be compiled for itself
                for layer in cast("Sequence[Layer]", self.model.layers):
                    by_torch = torch.compiler.disable(layer.experts.forward)  # type: ignore[no-untyped-call]
                    layer.experts.forward = by_torch  # type: ignore[method-assign]
            self.causal = torch.compile(causal_loss, dynamic=False)
            self.infill = torch.compile(infill_losses, dynamic=False)

    def go(self) -> None:
        """Trains to the end of the schedule, or until a signal or the clock asks to stop, and saves."""
        saved = time.monotonic()
        with Meter(share_done(self.job, self.done), is_shown=self.peers.rank == 0) as meter:
            while True:
                share, is_stopped, is_due = self._agree(time.monotonic() - saved > SAVE_SECONDS)
                if is_due:
                    self._save()
                    saved = time.monotonic()
                if is_stopped or share >= 1:
                    break
                losses = self._step(share)
                share = share_done(self.job, self.done)
                if self.peers.rank == 0 and (self.done.step % EVAL_STEPS == 0 or share >= 1):
                    self._record(losses)
                meter.show(self._told(), share, losses)
        self._save()

    def close(self) -> None:
        """Ends what was started beside the run."""
        if isinstance(self.examples, Feeder):
            self.examples.stop()

    def _told(self) -> str:
        n_steps = self.job.recipe.schedule.steps
        return f"step {self.done.step}/{n_steps}" if n_steps else f"step {self.done.step}"

    def _ask_to_stop(self, *_: object) -> None:
        self.is_stopped = True

    def _agree(self, is_due: bool) -> tuple[float, bool, bool]:
        """Returns what the first process' clock says is done, whether any must stop, and whether to save.

        Were each to go by its own clock, one could wait for the others in a step that they do not make.
        """
        is_late = self.job.stop_at is not None and time.monotonic() >= self.job.stop_at
        own = (share_done(self.job, self.done), float(is_due))
        of_first = own if self.peers.rank == 0 else (0.0, 0.0)
        flags = torch.tensor([float(self.is_stopped or is_late), *of_first], dtype=torch.float64)
        self.peers.add_up(flags)
        stopped, share, due = flags.tolist()
        return share, stopped > 0, due > 0

    def _step(self, share: float) -> dict[str, float]:
        schedule, data = self.job.recipe.schedule, self.job.recipe.data
        is_causal = not self.done.has_canvases and share < schedule.causal_share
        again = (self.done.step * schedule.self_conditioning_share) % 1 >= 1 - schedule.self_conditioning_share
        n_rows = (data.causal_rows_per_step if is_causal else data.infill_rows_per_step) // self.peers.n
        kind = is_causal, again and not is_causal
        if self.job.is_compiled and kind not in self.is_warm:
            # compiles, which is no training
            torch.autograd.backward(self._losses(self._draw(is_causal, n_rows), again=again)[0])
            self.model.zero_grad(set_to_none=True)
            self.is_warm.add(kind)
        started, cpu_started = time.monotonic(), time.process_time()
        drawn = self._draw(is_causal, n_rows)
        total, losses = self._losses(drawn, again=again)
        if not math.isfinite(total.item()):
            raise FloatingPointError(f"the loss at step {self.done.step} is {total.item()}: lower the learning rates")
        torch.autograd.backward(total)
        factor = learning_rate_factor(self.done.step - self.first_step, share, schedule)
        self.optimiser.step(factor, MAX_GRADIENT_NORM)
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                self.average[name].lerp_(parameter, 1 - schedule.average_decay)
        told = {name: loss.item() for name, loss in losses.items()}
        self.done.step += 1
        self.done.positions += _n_positions(drawn) * self.peers.n
        self.done.has_canvases = not is_causal
        self.done.seconds += time.monotonic() - started
        self.done.cpu_seconds += time.process_time() - cpu_started
        return told

    def _draw(self, is_causal: bool, n_rows: int) -> torch.Tensor | Batch:
        if is_causal:
            return self.examples.rows(n_rows).to(self.device, non_blocking=True)
        return self.examples.batch(n_rows).to(self.device)

    def _losses(self, drawn: torch.Tensor | Batch, *, again: bool) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Returns what is minimised, and what it is made of."""
        schedule = self.job.recipe.schedule
        with torch.autocast(self.device.type, torch.bfloat16):
            if isinstance(drawn, torch.Tensor):
                total = self.causal(self.model, drawn, self.bos)
                return total, {"causal": total}
            found = self.infill(self.model, drawn, self.bos, self_conditioned=again)
            total = found.causal + schedule.quoted_weight * found.quoted + schedule.canvas_weight * found.canvas
            return total, found._asdict()

    def _record(self, losses: dict[str, float]) -> None:
        """Measures the averaged weights on held-out rows and appends a point to the curve."""
        assert self.held is not None, "the first process holds the held-out rows"
        own = self._weights()
        put(self.model, self.average)
        with torch.no_grad(), torch.autocast(self.device.type, torch.bfloat16):
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
        self.folder.save_state(self.peers.rank, self.optimiser.state())
        if self.peers.rank == 0:
            self.folder.save(self.model, self.average, self.done, self.peers.n)
        self.peers.wait()


def _n_positions(drawn: torch.Tensor | Batch) -> int:
    if isinstance(drawn, torch.Tensor):
        return drawn.numel()
    return drawn.rows_RL.numel() + drawn.canvas_BC.numel() + drawn.quoted_BS.numel()


def _numbers(losses: Losses) -> dict[str, float]:
    return {name: loss.item() for name, loss in losses._asdict().items()}
