"""Tokens drawn from the whole vocabulary, each from a seed of its own."""

from __future__ import annotations

import torch

from midspan_kernels.choice import prefers_triton
from midspan_kernels.counter_random import random_bits


def random_tokens(seed_R: torch.Tensor, n_tokens: int) -> torch.Tensor:
    """Returns a token below n_tokens, int64, for each int64 seed; all are as probable to one part in 2**32 / n_tokens.

    What `row_samples` draws by the same seed is not independent of it.
    """
    if prefers_triton(seed_R):
        # Only there is Triton needed, and it takes time to import.
        from midspan_kernels.fused_random_tokens import fused_random_tokens

        return fused_random_tokens(seed_R, n_tokens)
    return random_bits(seed_R, 1)[:, 0] * n_tokens >> 32
