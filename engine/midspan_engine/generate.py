"""The reference sampler: block diffusion after a prompt, without pins.

Slow and readable on purpose. Its output equals a seeded `generate()` of transformers token for token, so it is the
oracle of the engine's own denoising loop. One row; the random numbers are drawn in the reference's order: the first
canvas, then in every step a sample of each slot and a whole canvas of fresh noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from midspan_engine.accept import entropy_bound, is_settled, temperature
from midspan_engine.config import GenerationConfig
from midspan_engine.kv import KVCache
from midspan_engine.models.diffusion_gemma import DiffusionGemma
from midspan_kernels.row_statistics import row_statistics

OnStep = Callable[[torch.Tensor], None]
"""Receives the draft, the most probable token of each slot [1, C], after every denoising step."""


@torch.no_grad()
def generate(
    model: DiffusionGemma,
    prompt_ids_1L: torch.Tensor,
    generation: GenerationConfig,
    max_new_tokens: int | None = None,
    generator: torch.Generator | None = None,
    on_step: OnStep | None = None,
) -> torch.Tensor:
    """Returns the prompt and whole canvases behind it, [1, L + n * C], with n = max_new_tokens / C rounded up.

    `max_new_tokens` defaults to the generation config's, `generator` to torch's global one. A canvas that holds an
    end-of-sequence token is the last one; what follows the token in it becomes padding.
    """
    wanted = generation.max_new_tokens if max_new_tokens is None else max_new_tokens
    n_canvases = math.ceil(wanted / model.config.canvas_length)
    cache = KVCache(model.config.n_layers)
    ids_1L, pending_1L = prompt_ids_1L, prompt_ids_1L
    for _ in range(n_canvases):
        model.encode(pending_1L, cache)
        pending_1L = denoise_canvas(model, cache, generation, generator, on_step)
        end = _end_of_sequence(pending_1L, generation.eos_token_ids)
        if end is not None:
            pending_1L[:, end + 1 :] = generation.pad_token_id
        ids_1L = torch.cat([ids_1L, pending_1L], dim=-1)
        if end is not None:
            break
    return ids_1L


def denoise_canvas(
    model: DiffusionGemma,
    cache: KVCache,
    generation: GenerationConfig,
    generator: torch.Generator | None,
    on_step: OnStep | None,
) -> torch.Tensor:
    """Returns one canvas [1, C] denoised from uniform noise: the last step's draft, never the sampled canvas."""
    vocab_size, shape = model.config.vocab_size, (1, model.config.canvas_length)
    device = model.embed_tokens.weight.device
    canvas_1C = torch.randint(vocab_size, shape, generator=generator, device=device)
    drafts: list[torch.Tensor] = []
    soft_1CH = None
    for step in range(generation.max_denoising_steps, 0, -1):
        z_1CV = model.logits(model.decode(canvas_1C, cache, soft_1CH)) / temperature(generation, step)
        statistics = row_statistics(z_1CV)
        drafts.append(statistics.argmax)
        sampled_1C = torch.multinomial(z_1CV[0].softmax(-1), 1, generator=generator).view(shape)
        accepted_1C = entropy_bound(statistics.entropy, generation.entropy_bound)
        # Nothing sticks: a slot accepted in this step may be noise again after the next.
        noise_1C = torch.randint(vocab_size, shape, generator=generator, device=device)
        canvas_1C = torch.where(accepted_1C, sampled_1C, noise_1C)
        if on_step is not None:
            on_step(statistics.argmax)
        if is_settled(drafts, statistics.entropy, generation):
            break
        soft_1CH = model.soften(z_1CV)
    return drafts[-1].clone()


def _end_of_sequence(canvas_1C: torch.Tensor, eos_token_ids: tuple[int, ...]) -> int | None:
    """Returns the slot of the first end-of-sequence token."""
    is_end_C = torch.isin(canvas_1C[0], torch.tensor(eos_token_ids, dtype=canvas_1C.dtype, device=canvas_1C.device))
    return int(is_end_C.nonzero()[0]) if is_end_C.any() else None
