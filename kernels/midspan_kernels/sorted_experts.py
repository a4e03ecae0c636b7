"""The blocks of `expert_blocks` in one Triton launch instead of fifteen: each takes longer than its work.

A program serves one expert: it looks through all pairs, so that none waits for another.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


def sorted_experts(
    expert_P: torch.Tensor, n_experts: int, n_rows: int, n_blocks: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns what `expert_blocks` does; blocks that are not needed are [0, 0, 0]."""
    n_pairs = len(expert_P)
    order = torch.empty(n_pairs, dtype=torch.int64, device=expert_P.device)
    blocks = torch.empty(3, n_blocks, dtype=torch.int64, device=expert_P.device)
    _sorting_kernel[(n_experts,)](
        expert_P.contiguous(), order, blocks, n_pairs, n_blocks, ROWS=n_rows,
        BLOCK_P=triton.next_power_of_2(n_pairs), BLOCK_E=triton.next_power_of_2(n_experts),
        BLOCK_B=triton.next_power_of_2(n_blocks),
    )  # fmt: skip
    return order, blocks


@triton.jit
def _sorting_kernel(
    experts, order, blocks, n_pairs, n_blocks,
    ROWS: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_B: tl.constexpr,
):  # fmt: skip
    expert = tl.program_id(0)
    pair_P = tl.arange(0, BLOCK_P)
    is_pair_P = pair_P < n_pairs
    expert_P = tl.load(experts + pair_P, mask=is_pair_P, other=0).to(tl.int32)
    is_mine_P = is_pair_P & (expert_P == expert)
    start = tl.sum((is_pair_P & (expert_P < expert)).to(tl.int32), 0)
    count = tl.sum(is_mine_P.to(tl.int32), 0)
    tl.store(order + start + tl.cumsum(is_mine_P.to(tl.int32), 0) - 1, pair_P.to(tl.int64), mask=is_mine_P)
    n_of_each_E = tl.cdiv(tl.histogram(expert_P, BLOCK_E, mask=is_pair_P), ROWS)
    before = tl.sum(tl.where(tl.arange(0, BLOCK_E) < expert, n_of_each_E, 0), 0)
    block_B = tl.arange(0, BLOCK_B)
    nth_B = block_B - before
    is_mine_B = (nth_B >= 0) & (nth_B < tl.cdiv(count, ROWS))
    # the last expert's program empties what is left
    is_left_B = (expert == tl.num_programs(0) - 1) & (nth_B >= tl.cdiv(count, ROWS)) & (block_B < n_blocks)
    first_B = tl.where(is_left_B, 0, start + nth_B * ROWS)
    end_B = tl.where(is_left_B, 0, tl.minimum(start + nth_B * ROWS + ROWS, start + count))
    mask = is_mine_B | is_left_B
    tl.store(blocks + block_B, tl.where(is_left_B, 0, expert).to(tl.int64), mask=mask)
    tl.store(blocks + n_blocks + block_B, first_B.to(tl.int64), mask=mask)
    tl.store(blocks + 2 * n_blocks + block_B, end_B.to(tl.int64), mask=mask)
