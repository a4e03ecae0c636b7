"""Passes of few lengths where every length costs memory, whatever is typed.

On a CPU oneDNN compiles a kernel for every matrix and number of rows that it meets in bf16. It and the layer of torch
above it each keep up to 1024 of them: 0.6 MB and 2 ms for each. Lengths as they come would take hundreds of megabytes
in the course of a day, and the first key of each length a tenth of a second longer.
"""

from __future__ import annotations

import torch

from midspan_engine.kv import KVCache
from midspan_engine.models.diffusion_gemma import DiffusionGemma

_SIGNIFICANT_BITS = 3
"""Of a length: up to 8 all of them, beyond that four from each power of two to the next, so that less than a fifth of
a pass is wasted. Chosen."""


def encode(model: DiffusionGemma, ids: list[int], cache: KVCache) -> torch.Tensor:
    """Appends tokens to a cache and returns their hidden states [1, L, H], after the final norm.

    Tokens that fill up a length come behind all others, which do not see them, and are cut off again.
    """
    end = cache.length + len(ids)
    fed = filled_up(ids, model) if cache.row is None else ids  # a pool has passes of fixed shapes
    hidden_1LH = model.encode(torch.tensor([fed], device=model.embed_tokens.weight.device), cache)
    cache.truncate(end)
    return hidden_1LH[:, : len(ids)]


def filled_up(numbers: list[int], model: DiffusionGemma) -> list[int]:
    """Returns a list with its last number repeated up to the next length that passes of this model may have."""
    weight = model.embed_tokens.weight
    if weight.device.type != "cpu" or weight.dtype != torch.bfloat16:
        return numbers
    return numbers + numbers[-1:] * (rounded(len(numbers)) - len(numbers))


def rounded(n: int) -> int:
    """Returns the next length that passes may have."""
    step = 1 << max(0, (n - 1).bit_length() - _SIGNIFICANT_BITS)
    return -(-n // step) * step
