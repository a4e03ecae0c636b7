"""The training loop: several single-threaded processes, checkpoints, resume, a progress bar and a curve.

Two processes of one thread beat two threads of one process by about 1.8 on a CPU. The run folder holds
`checkpoint/` (the averaged weights, ready to serve), `weights.safetensors` (the raw ones), one `state-RANK.safetensors`
per process, `progress.json` and `curve.jsonl`.
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
import torch.multiprocessing
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from safetensors.torch import load_file, save_file

from midspan_engine.config import load_model_config
from midspan_engine.models.diffusion_gemma import DiffusionGemma, checkpoint_name
from midspan_engine.tokens import Tokens
from midspan_engine.training.examples import ExampleMaker
from midspan_engine.training.losses import causal_loss, infill_losses, to_tensors
from midspan_engine.training.optimiser import Optimiser
from midspan_engine.training.recipe import Recipe, Schedule, checkpoint_config

SAVE_SECONDS = 240
"""A killed run loses at most these."""
EVAL_STEPS = 50
MAX_GRADIENT_NORM = 1.0


class Progressed(msgspec.Struct):
    """How far a run is."""

    step: int = 0
    positions: int = 0
    """Token positions seen, of rows and canvases, over all processes."""
    seconds: float = 0.0


def train(recipe: Recipe, data: Path, run: Path, *, processes: int, start_from: Path | None = None) -> None:
    """Trains in `run` until the recipe's steps are done; goes on where an earlier call there stopped.

    `start_from` is a checkpoint folder whose weights a new run begins with. `data` holds tokenizer.json, train.bin and
    held.bin.
    """
    run.mkdir(parents=True, exist_ok=True)
    port = 20000 + os.getpid() % 20000
    arguments = (processes, port, recipe, data, run, start_from)
    torch.multiprocessing.start_processes(_process, arguments, nprocs=processes, start_method="spawn")


def learning_rate_factor(step: int, schedule: Schedule) -> float:
    """Returns the factor of the learning rates at a step: linear warm-up, constant, linear decay to a tenth."""
    left = (schedule.steps - step) / max(1.0, schedule.decay_share * schedule.steps)
    return min(1.0, (step + 1) / schedule.warmup_steps, 0.1 + 0.9 * max(0.0, left))


def initialise(model: DiffusionGemma) -> None:
    """Draws starting weights: unit-variance activations, quiet residual branches, attention at the usual 1/sqrt(D)."""
    branch = (2 * model.config.n_layers) ** -0.5
    for name, parameter in model.named_parameters():
        if name.startswith("embed_tokens"):
            torch.nn.init.normal_(parameter, std=model.config.hidden_size**-0.5)
        elif name == "self_conditioning.down_proj.weight":
            torch.nn.init.zeros_(parameter)
        elif parameter.ndim >= 2:
            torch.nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)
        elif name.endswith(("q_norm.weight", "k_norm.weight")):
            # scores have scale 1.0, so each side carries the square root of 1/sqrt(D)
            torch.nn.init.constant_(parameter, parameter.shape[0] ** -0.25 * 1.5)
        elif name.endswith(("post_attention_layernorm.weight", "post_feedforward_layernorm.weight")):
            torch.nn.init.constant_(parameter, branch)


def _process(
    rank: int, world: int, port: int, recipe: Recipe, data: Path, run: Path, start_from: Path | None
) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(recipe.seed)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    _Run(rank, world, recipe, data, run, start_from).go()
    dist.destroy_process_group()


class _Run:
    def __init__(
        self, rank: int, world: int, recipe: Recipe, data: Path, run: Path, start_from: Path | None
    ) -> None:
        self.rank, self.world, self.recipe, self.run = rank, world, recipe, run
        self.tokens = Tokens.load(data / "tokenizer.json")
        self.checkpoint = run / "checkpoint"
        self._write_configs(data)
        self.model = DiffusionGemma(load_model_config(self.checkpoint))
        initialise(self.model)
        self.done = Progressed()
        progress = run / "progress.json"
        if progress.exists():
            self.done = msgspec.json.decode(progress.read_bytes(), type=Progressed)
            self._load_weights(run / "weights.safetensors")
        elif start_from is not None:
            self._load_weights(start_from / "model.safetensors")
        self.average = {name: p.detach().clone() for name, p in self.model.named_parameters()}
        if (run / "average.safetensors").exists():
            self.average = load_file(run / "average.safetensors")
        self.optimiser = Optimiser(self.model, recipe.schedule)
        state = run / f"state-{rank}.safetensors"
        if state.exists():
            self.optimiser.load_state(load_file(state))
        seed = recipe.seed + 1000 * rank + self.done.step
        self.examples = self._maker(data / "train.bin", seed)
        held = self._maker(data / "held.bin", 1).batch(8)
        self.held = to_tensors(held)
        self.causal = torch.compile(causal_loss, dynamic=False)
        self.infill = torch.compile(infill_losses, dynamic=False)
        self.stopped = False

    def _maker(self, stream: Path, seed: int) -> ExampleMaker:
        data = self.recipe.data
        return ExampleMaker(
            self.tokens,
            stream,
            self.recipe.infill,
            n_tokens=data.row_tokens,
            n_canvases=data.canvases_per_row,
            n_slots=self.recipe.shape.canvas_length,
            seed=seed,
        )

    def go(self) -> None:
        """Trains to the end of the schedule, or until a signal asks to stop."""
        signal.signal(signal.SIGTERM, self._ask_to_stop)
        signal.signal(signal.SIGINT, self._ask_to_stop)
        schedule = self.recipe.schedule
        saved = started = time.monotonic()
        before = self.done.seconds
        columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.fields[note]}"))
        with Progress(*columns, disable=self.rank > 0) as bar:
            task = bar.add_task("training", total=schedule.steps, completed=self.done.step, note="")
            while self.done.step < schedule.steps and not self._everyone_stops():
                losses = self._step()
                self.done.seconds = before + time.monotonic() - started
                bar.update(task, completed=self.done.step, note=" ".join(f"{k} {v:.3f}" for k, v in losses.items()))
                if self.rank == 0 and self.done.step % EVAL_STEPS == 0:
                    self._record(losses)
                if time.monotonic() - saved > SAVE_SECONDS:
                    self._save()
                    saved = time.monotonic()
        self._save()

    def _ask_to_stop(self, *_: object) -> None:
        self.stopped = True

    def _everyone_stops(self) -> bool:
        flag = torch.tensor([float(self.stopped)])
        dist.all_reduce(flag)
        return bool(flag)

    def _step(self) -> dict[str, float]:
        schedule = self.recipe.schedule
        data = self.recipe.data
        is_causal = self.done.step < schedule.causal_share * schedule.steps
        n_rows = data.causal_rows_per_step if is_causal else data.infill_rows_per_step
        positions = n_rows * data.row_tokens
        n_rows //= self.world
        bos = self.tokens.bos_token_id or 0
        losses: dict[str, float] = {}
        with torch.autocast("cpu", torch.bfloat16):
            if is_causal:
                total = self.causal(self.model, torch.from_numpy(self.examples.rows(n_rows)), bos)
                losses["causal"] = float(total)
            else:
                batch = to_tensors(self.examples.batch(n_rows))
                again = (self.done.step * schedule.self_conditioning_share) % 1 >= 1 - schedule.self_conditioning_share
                causal, canvas = self.infill(self.model, batch, bos, self_conditioned=again)
                total = causal + schedule.canvas_weight * canvas
                losses |= {"causal": float(causal), "canvas": float(canvas)}
                positions += batch.canvas_BC.numel() * self.world
        total.backward()
        if not math.isfinite(float(total)):
            raise FloatingPointError(f"the loss at step {self.done.step} is {float(total)}; lower the learning rates")
        self.optimiser.step(learning_rate_factor(self.done.step, schedule), MAX_GRADIENT_NORM)
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                self.average[name].lerp_(parameter, 1 - self.recipe.schedule.average_decay)
        self.done.step += 1
        self.done.positions += positions
        return losses

    def _record(self, losses: dict[str, float]) -> None:
        """Measures the averaged weights on held-out rows and appends a point to the curve."""
        own = {name: p.detach().clone() for name, p in self.model.named_parameters()}
        self._put(self.average)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            causal, canvas = infill_losses(self.model, self.held, self.tokens.bos_token_id or 0, self_conditioned=False)
        self._put(own)
        point = {
            **msgspec.structs.asdict(self.done),
            "train": losses,
            "held": {"causal": float(causal), "canvas": float(canvas)},
        }
        with (self.run / "curve.jsonl").open("a") as curve:
            curve.write(json.dumps(point) + "\n")

    def _put(self, weights: dict[str, torch.Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(weights[name])

    def _load_weights(self, path: Path) -> None:
        stored = load_file(path)
        self._put({name: stored[checkpoint_name(name)] for name, _ in self.model.named_parameters()})

    def _save(self) -> None:
        _save(self.optimiser.state(), self.run / f"state-{self.rank}.safetensors")
        if self.rank == 0:
            raw = {checkpoint_name(name): p.detach() for name, p in self.model.named_parameters()}
            _save(raw, self.run / "weights.safetensors")
            _save(self.average, self.run / "average.safetensors")
            served = {checkpoint_name(name): p.to(torch.bfloat16) for name, p in self.average.items()}
            _save(served, self.checkpoint / "model.safetensors")
            (self.run / "progress.json").write_bytes(msgspec.json.encode(self.done))
        dist.barrier()

    def _write_configs(self, data: Path) -> None:
        if self.rank == 0:
            self.checkpoint.mkdir(exist_ok=True)
            config = checkpoint_config(self.recipe.shape, self.tokens.n_ids)
            generation = {
                "max_denoising_steps": 48,
                "max_new_tokens": self.recipe.shape.canvas_length,
                "sampler_config": {"_cls_name": "EntropyBoundSamplerConfig", "entropy_bound": 0.1},
                "t_min": 0.4,
                "t_max": 0.8,
                "confidence_threshold": 0.005,
                "stability_threshold": 1,
                "eos_token_id": [1],
                "pad_token_id": 0,
            }
            infill = {k: v for k, v in msgspec.to_builtins(self.recipe.infill).items() if v is not None}
            for name, content in (("config", config), ("generation_config", generation), ("infill_config", infill)):
                (self.checkpoint / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n")
            (self.checkpoint / "tokenizer.json").write_bytes((data / "tokenizer.json").read_bytes())
        dist.barrier()


def _save(tensors: dict[str, torch.Tensor], path: Path) -> None:
    """Writes beside the target first, so that a kill never leaves half a file."""
    draft = path.with_suffix(".tmp")
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, draft, metadata={"format": "pt"})
    draft.replace(path)
