"""The encoder run as a left-to-right language model: with the tied output head it predicts the next token."""

from __future__ import annotations

from collections.abc import Callable

import torch

from midspan_engine.healing import GapRules
from midspan_engine.kv import KVCache
from midspan_engine.models.diffusion_gemma import DiffusionGemma


@torch.inference_mode()
def continue_greedily(
    model: DiffusionGemma,
    cache: KVCache,
    last_id: int,
    rules: GapRules,
    required: bytes,
    is_end: Callable[[int], bool],
    max_tokens: int,
) -> tuple[list[int], list[float]]:
    """Returns the most probable continuation, token by token, and each token's probability.

    `cache` holds the prompt but its last token, `last_id`; it is cut back to that length at the end. The continuation
    begins with the bytes `required`. It stops before a token for which `is_end` is true once they are spelled.
    """
    length = cache.length
    ids: list[int] = []
    confidences: list[float] = []
    token = last_id
    device = model.embed_tokens.weight.device
    for _ in range(max_tokens):
        hidden = model.encode(torch.tensor([[token]], device=device), cache)
        z_V = rules.constrain(model.logits(hidden)[0], required, single_line=False)[0]
        token = int(z_V.argmax())
        if not required and is_end(token):
            break
        required = rules.rest(required, token)
        ids.append(token)
        confidences.append(float(z_V.softmax(-1)[token]))
    cache.truncate(length)
    return ids, confidences
