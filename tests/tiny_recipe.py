"""A recipe of a size that tests can train, and a run of it in this process."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import torch

from midspan_engine.training.job import Job
from midspan_engine.training.recipe import Recipe, Schedule, load_recipe
from midspan_engine.training.run_folder import RunFolder
from midspan_engine.training.trainer import run_process

TINY = """
seed = 1
[shape]
hidden_size = 64
intermediate_size = 64
moe_intermediate_size = 64
num_experts = 1
top_k_experts = 1
layer_types = ["sliding_attention", "full_attention"]
num_attention_heads = 2
num_key_value_heads = 1
head_dim = 32
sliding_window = 128
canvas_length = 64
[data]
row_tokens = 128
canvases_per_row = 4
causal_rows_per_step = 4
infill_rows_per_step = 2
[schedule]
steps = 60
causal_share = 0.4
decay_share = 0.25
warmup_steps = 4
matrix_lr = 1e-2
other_lr = 1e-2
weight_decay = 0.01
canvas_weight = 1.0
quoted_weight = 1.0
blank_weight = 1.0
self_conditioning_share = 0.5
average_decay = 0.8
[infill]
noise = "mask"
order = "left_to_right"
mask_token_id = 4
blank_token_id = 5
languages = ["python"]
prompt_tokens = 112
tail_tokens = 8
head_tokens = 40
gap_tokens = 40
quote_tokens = 12
"""


def tiny_recipe(folder: Path, **schedule: object) -> Recipe:
    """Returns the recipe with changes of its schedule."""
    path = folder / "tiny.toml"
    path.write_text(TINY)
    return rescheduled(load_recipe(str(path)), **schedule)


def rescheduled(recipe: Recipe, **changes: object) -> Recipe:
    """Returns a recipe with changes of its schedule."""
    schedule: Schedule = msgspec.structs.replace(recipe.schedule, **changes)
    return msgspec.structs.replace(recipe, schedule=schedule)


def run_here(job: Job) -> RunFolder:
    """Trains in this process, alone, and returns the run's folder."""
    folder = RunFolder(job.run)
    folder.write_configs(job.recipe, job.data / "tokenizer.json")
    with _as_before():
        run_process(0, 1, 0, job)
    return folder


@contextmanager
def _as_before() -> Iterator[None]:
    """Puts back what a training process changes of its process."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    n_threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)
        for number, handler in handlers.items():
            signal.signal(number, handler)
