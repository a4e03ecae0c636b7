"""The folder of a training run: what is saved in it, and how a later call goes on from there.

::

    checkpoint/               the averaged weights and their configuration, ready to serve
    weights.safetensors       the raw weights
    average.safetensors       the averaged ones in fp32
    state-RANK.safetensors    the optimiser's state, one file a process
    progress.json             how far the run is
    curve.jsonl               held-out losses, a point a line

Where only checkpoint/ and progress.json are left of a run, it goes on from the averaged weights and warms up again.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import torch

from midspan_engine.config import GenerationConfig, write_infill_config
from midspan_engine.errors import CheckpointError, InputError
from midspan_engine.formats.tensor_file import load_tensors, save_tensors
from midspan_engine.models.checkpoint_names import checkpoint_name
from midspan_engine.models.diffusion_gemma import DiffusionGemma
from midspan_engine.tokens import Tokens
from midspan_engine.training.recipe import Recipe, checkpoint_config
from midspan_engine.training.shards import read_pieces, save_in_pieces, save_named
from midspan_engine.training.vocabulary import SPECIAL_TOKENS

Tensors = dict[str, torch.Tensor]


class Progressed(msgspec.Struct):
    """How far a run is."""

    step: int = 0
    positions: int = 0
    """Token positions seen, of rows and canvases, over all processes."""
    seconds: float = 0.0
    """Time of the steps, without compiling, measuring and saving."""
    cpu_seconds: float = 0.0
    """CPU time of the steps in one process."""
    has_canvases: bool = False
    """Whether canvases are trained by now; a run that is made longer does not fall back to the causal loss alone."""


class RunFolder:
    """Reads and writes one run."""

    def __init__(self, path: Path) -> None:
        self.path, self.checkpoint = path, path / "checkpoint"
        self.curve = path / "curve.jsonl"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the folder for this process. Raises InputError when another one holds it."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise InputError(
                    f"another process trains in {self.path}: wait for it, stop it, or give another folder with --run"
                ) from error
            yield

    def progress(self) -> Progressed:
        """Returns how far the run is; zeros for a new one."""
        try:
            return msgspec.json.decode((self.path / "progress.json").read_bytes(), type=Progressed)
        except FileNotFoundError:
            return Progressed()
        except msgspec.DecodeError as error:
            raise InputError(f"{self.path / 'progress.json'} is damaged: {error}; begin anew with --run") from error

    def write_configs(self, recipe: Recipe, tokenizer: Path) -> None:
        """Writes all of the checkpoint but its weights."""
        self.checkpoint.mkdir(parents=True, exist_ok=True)
        files = {
            "config": checkpoint_config(recipe.shape, Tokens.load(tokenizer).n_ids),
            "generation_config": _generation_config(recipe.shape.canvas_length),
        }
        for name, content in files.items():
            (self.checkpoint / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n")
        write_infill_config(self.checkpoint, recipe.infill)
        (self.checkpoint / "tokenizer.json").write_bytes(tokenizer.read_bytes())

    @property
    def has_state(self) -> bool:
        """Whether there is more of the run than its checkpoint."""
        return (self.path / "weights.safetensors").exists()

    def newest_weights(self) -> Path:
        """Returns the file of the raw weights, or the folder of the averaged ones where that is gone."""
        return self.path / "weights.safetensors" if self.has_state else self.checkpoint

    def load_weights(self, model: DiffusionGemma) -> Tensors:
        """Puts the saved weights into the model and returns their running average."""
        put(model, read_weights(self.newest_weights(), model))
        if self.has_state:
            return load_tensors(self.path / "average.safetensors")
        return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}

    def drop_state(self) -> None:
        """Deletes what only a run that goes on needs."""
        for file in self.path.glob("*.safetensors"):
            file.unlink()

    def states(self) -> list[Tensors]:
        """Returns the optimiser states by rank; none for a new run, or where the weights are gone."""
        if not self.has_state:
            return []
        files = sorted(self.path.glob("state-*.safetensors"), key=lambda file: int(file.stem.split("-")[1]))
        return [load_tensors(file) for file in files]

    def save_state(self, rank: int, state: Tensors) -> None:
        """Writes one process' optimiser state."""
        save_tensors(state, self.path / f"state-{rank}.safetensors")

    def save(self, model: DiffusionGemma, average: Tensors, progress: Progressed, n_processes: int) -> None:
        """Writes weights, checkpoint and, last, the progress; drops what a larger number of processes left."""
        average = {name: tensor.cpu() for name, tensor in average.items()}
        raw = {name: parameter.detach().cpu() for name, parameter in model.named_parameters()}
        save_named(raw, self.path / "weights.safetensors", torch.float32)
        save_tensors(average, self.path / "average.safetensors")
        save_in_pieces(average, self.checkpoint, torch.bfloat16)
        for file in self.path.glob("state-*.safetensors"):
            if int(file.stem.split("-")[1]) >= n_processes:
                file.unlink()
        draft = self.path / "progress.tmp"
        draft.write_bytes(msgspec.json.encode(progress))
        draft.replace(self.path / "progress.json")


def read_weights(path: Path, model: DiffusionGemma) -> Tensors:
    """Returns the weights of a file or a checkpoint by the model's own names.

    Raises CheckpointError when they do not fit the model.
    """
    stored = read_pieces(path) if path.is_dir() else load_tensors(path)
    found: Tensors = {}
    for name, parameter in model.named_parameters():
        tensor = stored.get(checkpoint_name(name))
        if tensor is None or tensor.shape != parameter.shape:
            what = "is missing" if tensor is None else f"is {list(tensor.shape)}, not {list(parameter.shape)}"
            raise CheckpointError(f"{path}: {checkpoint_name(name)} {what}: it belongs to a recipe of another shape")
        found[name] = tensor
    return found


def put(model: DiffusionGemma, weights: Tensors) -> None:
    """Copies weights into the model's parameters, whose storage stays the same."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])


def _generation_config(canvas_length: int) -> dict[str, Any]:
    defaults = GenerationConfig()
    return {
        "max_denoising_steps": defaults.max_denoising_steps,
        "max_new_tokens": canvas_length,
        "sampler_config": {"_cls_name": "EntropyBoundSamplerConfig", "entropy_bound": defaults.entropy_bound},
        "t_min": defaults.t_min,
        "t_max": defaults.t_max,
        "confidence_threshold": defaults.confidence_threshold,
        "stability_threshold": defaults.stability_threshold,
        "eos_token_id": [SPECIAL_TOKENS.index("<eos>")],
        "pad_token_id": SPECIAL_TOKENS.index("<pad>"),
    }
