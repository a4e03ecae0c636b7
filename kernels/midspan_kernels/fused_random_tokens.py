"""Random tokens in one Triton kernel: in torch, ten rounds of Philox are some two hundred operations."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


def fused_random_tokens(seed_R: torch.Tensor, n_tokens: int) -> torch.Tensor:
    """Returns what `random_tokens` does."""
    token_R = torch.empty(len(seed_R), dtype=torch.int64, device=seed_R.device)
    _token_kernel[(len(seed_R),)](seed_R.contiguous(), token_R, n_tokens, num_warps=1)
    return token_R


@triton.jit
def _token_kernel(seeds, tokens, n_tokens):
    row = tl.program_id(0)
    bits = tl.randint(tl.load(seeds + row), tl.arange(0, 1)).to(tl.uint32, bitcast=True).to(tl.int64)
    tl.store(tokens + row + tl.arange(0, 1), bits * n_tokens >> 32)
