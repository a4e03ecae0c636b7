"""This engine beside transformers on the same weights, in turn: a pass, a canvas from prompt to end, peak memory."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch

from midspan_engine.bench.timing import Run, medians_ms
from midspan_engine.bench.twin import NOT_INSTALLED, is_installed, twin_of
from midspan_engine.canvas import Canvas
from midspan_engine.config import GenerationConfig, InfillConfig, ModelConfig
from midspan_engine.denoise import begin, denoise
from midspan_engine.errors import EngineError
from midspan_engine.models.diffusion_gemma import DiffusionGemma
from midspan_engine.models.packed_matrix import PackedMatrix
from midspan_engine.order import Task

N_STEPS = 8
"""Of a canvas: what a fill of one line is meant to take with the released checkpoint."""
NEVER = 1e-9
"""Mean entropy below which a canvas is settled: none is, so both take every step."""
PROMPT_TOKENS = 400
_N_PASSES, _N_CANVASES = 15, 3
_TEMPERATURE = 0.7
"""Of the logits fed back; a value from the middle of the sampler's range."""


class Pair(msgspec.Struct, frozen=True):
    """What both take for the same work."""

    own: float
    transformers: float

    @property
    def ratio(self) -> float:
        """How many times as much transformers takes."""
        return self.transformers / self.own


class Beside(msgspec.Struct, frozen=True):
    """This engine and transformers, or why there is nothing to tell."""

    ms: dict[str, Pair] = {}
    peak_mb: Pair | None = None
    """Most memory of a process that loads, reads a prompt and denoises a canvas; of a GPU its own memory."""
    note: str = ""


def measure_beside(model: DiffusionGemma, checkpoint: Path | None) -> Beside:
    """Times both in turn on a model with plain weights; of a checkpoint the memory of a process each is told too."""
    if not is_installed():
        return Beside(note=NOT_INSTALLED)
    if any(isinstance(module, PackedMatrix) for module in model.modules()):
        return Beside(note="these weights are packed, which transformers cannot compute with")
    device = model.embed_tokens.weight.device
    ms: dict[str, Pair] = {}
    for (name, own, theirs), n_times in zip(
        _works(model, twin_of(model)), (_N_PASSES, _N_PASSES, _N_CANVASES), strict=True
    ):
        with torch.inference_mode():
            times = medians_ms({"own": own, "transformers": theirs}, device, n_times)
        ms[name] = Pair(times["own"], times["transformers"])
    return Beside(ms, None if checkpoint is None else _peaks_mb(checkpoint))


def _works(model: DiffusionGemma, twin: Any) -> list[tuple[str, Run, Run]]:
    """Returns what is done by both: its name, ours, theirs."""
    config, device = model.config, model.embed_tokens.weight.device
    n_prompt = min(PROMPT_TOKENS, config.max_positions - 2 * config.canvas_length)
    prompt_1L, canvas_1C = (random_ids(config, device, n) for n in (n_prompt, config.canvas_length))
    cache = model.new_cache()
    with torch.inference_mode():
        model.encode(prompt_1L, cache)
        fed_back = model.logits(model.decode(canvas_1C, cache)) / _TEMPERATURE
    their_step = step_of(twin, prompt_1L, canvas_1C, fed_back)
    n_new = config.canvas_length
    return [
        (
            f"prompt of {n_prompt} tokens",
            lambda: model.encode(prompt_1L, model.new_cache()),
            reader_of(twin, prompt_1L),
        ),
        (
            f"pass over {n_new} slots",
            lambda: model.logits(model.decode(canvas_1C, cache, model.soften(fed_back))),
            their_step,
        ),
        (
            f"prompt and canvas of {n_new}, {N_STEPS} steps",
            lambda: own_canvas(model, prompt_1L),
            canvas_of(twin, prompt_1L, N_STEPS),
        ),
    ]


def own_canvas(model: DiffusionGemma, prompt_1L: torch.Tensor) -> None:
    """Reads a prompt and denoises a free canvas behind it, as the engine does it, in `N_STEPS` steps."""
    cache, n_slots = model.new_cache(), model.config.canvas_length
    with torch.inference_mode():
        model.encode(prompt_1L, cache)
    task = Task(Canvas((0,) * n_slots, (range(n_slots),)), ())
    generation = GenerationConfig(confidence_threshold=NEVER)
    settling = begin(model, task, None, InfillConfig(), generation)
    denoise(model, cache, settling, N_STEPS, lambda: False)


def random_ids(config: ModelConfig, device: torch.device, n: int, n_rows: int = 1) -> torch.Tensor:
    """Returns tokens [B, n], always the same; none is the last one, which stands for images."""
    generator = torch.Generator().manual_seed(n)
    return torch.randint(config.vocab_size - 1, (n_rows, n), generator=generator).to(device)


def reader_of(twin: Any, prompt_1L: torch.Tensor) -> Callable[[], Any]:
    """Returns what has transformers read a prompt into a new cache, which it returns."""
    from transformers import DynamicCache

    def read() -> Any:
        cache = DynamicCache(config=twin.config.get_text_config())
        twin.model.encoder(input_ids=prompt_1L, **{_cache_name(twin): cache})
        return cache

    return read


def step_of(
    twin: Any, prompt_1L: torch.Tensor, canvas_BC: torch.Tensor, fed_back: torch.Tensor
) -> Callable[[], torch.Tensor]:
    """Returns what has transformers make a pass over a canvas behind a prompt, and returns its logits."""
    with torch.inference_mode():
        about = {_cache_name(twin): reader_of(twin, prompt_1L)()}
    rounded = fed_back.to(twin.lm_head.weight.dtype)
    return lambda: twin(decoder_input_ids=canvas_BC, self_conditioning_logits=rounded, **about).logits


def canvas_of(twin: Any, prompt_1L: torch.Tensor, n_steps: int, **about: Any) -> Run:
    """Returns what has transformers generate one canvas behind a prompt, in so many steps."""
    return lambda: twin.generate(
        prompt_1L,
        max_new_tokens=twin.config.canvas_length,
        max_denoising_steps=n_steps,
        confidence_threshold=NEVER,
        **about,
    )


def _cache_name(twin: Any) -> str:
    """Returns what the argument is called that holds the cache; older releases say past_key_values."""
    return "cache" if "cache" in inspect.signature(twin.model.decoder.forward).parameters else "past_key_values"


def _peaks_mb(checkpoint: Path) -> Pair:
    return Pair(*(_peak_mb(who, checkpoint) for who in ("own", "transformers")))


def _peak_mb(who: str, checkpoint: Path) -> float:
    command = [sys.executable, "-m", "midspan_engine.bench.peak_memory", who, str(checkpoint)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise EngineError(f"the process that was to tell its memory failed: {done.stderr.strip()[-300:]}")
    return float(done.stdout.split()[-1])
