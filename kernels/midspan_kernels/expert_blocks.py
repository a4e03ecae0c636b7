"""The pairs of token and expert in the order of their experts, and cut into blocks of one expert each.

Shapes depend on how many pairs and experts there are, never on the routing. Suffixes: P pairs, E experts.
"""

from __future__ import annotations

import torch

from midspan_kernels.choice import prefers_triton

BLOCK_ROWS = 16
"""Pairs of a block: the least that a matrix product takes; most experts have fewer."""
_FEW_PAIRS = 2048
"""A canvas of 256 slots of 8 experts: up to there a program holds them all."""


def expert_blocks(expert_P: torch.Tensor, n_experts: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the pairs in order, int64 [P], and blocks of at most `BLOCK_ROWS` of them, int64 [3, blocks].

    A block has an expert, a first place in that order and an end. There are as many as any routing needs; those that
    this one does not need are empty.
    """
    n_pairs, device = len(expert_P), expert_P.device
    n_blocks = min(n_experts, n_pairs) + n_pairs // BLOCK_ROWS
    if prefers_triton(expert_P) and n_pairs <= _FEW_PAIRS:
        # Only there is Triton needed, and it takes time to import.
        from midspan_kernels.sorted_experts import sorted_experts

        return sorted_experts(expert_P, n_experts, BLOCK_ROWS, n_blocks)
    order = expert_P.argsort(stable=True)
    counts = torch.zeros(n_experts, dtype=torch.int64, device=device)
    counts.scatter_add_(0, expert_P, torch.ones_like(expert_P))
    ends, n_of_each = counts.cumsum(0), (counts + BLOCK_ROWS - 1) // BLOCK_ROWS
    block_ends = n_of_each.cumsum(0)
    block = torch.arange(n_blocks, device=device)
    expert = torch.searchsorted(block_ends, block, right=True).clamp(max=n_experts - 1)
    nth = block - (block_ends - n_of_each)[expert]
    first = (ends - counts)[expert] + nth * BLOCK_ROWS
    end = torch.minimum(first + BLOCK_ROWS, ends[expert])
    return order, torch.stack([expert, first, end.where(block < block_ends[-1], first)])
