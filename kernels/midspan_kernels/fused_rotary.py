"""RMS norm of heads and rotary embedding in one Triton pass; pairs that do not turn have angle 0 in the tables.

Every step rounds where the reference does, so only the order of the sum of squares differs.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK_ELEMENTS = 2048
"""Of a program: eight heads of 256, four of 512. Chosen."""


def fused_rotary(
    x: torch.Tensor, weight: torch.Tensor, eps: float, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor:
    """Returns what `normed_rotate` does."""
    x, cos, sin = x.contiguous(), cos.contiguous(), sin.contiguous()
    out, (n_heads, dim) = torch.empty_like(x), x.shape[-2:]
    n_rows, half = x.numel() // dim, triton.next_power_of_2(dim // 2)
    n_together = max(1, BLOCK_ELEMENTS // (2 * half))
    _rotary_kernel[(triton.cdiv(n_rows, n_together),)](
        x, weight, cos, sin, out, n_rows, n_heads, cos.numel() // dim, dim // 2, eps,
        BLOCK_ROWS=n_together, BLOCK_PAIRS=half,
    )  # fmt: skip
    return out


@triton.jit
def _rotary_kernel(
    x, weight, cos, sin, out, n_rows, n_heads, n_angles, n_pairs, eps,
    BLOCK_ROWS: tl.constexpr, BLOCK_PAIRS: tl.constexpr,
):  # fmt: skip
    type = out.dtype.element_ty
    row_R = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    pair_P = tl.arange(0, BLOCK_PAIRS)
    is_pair_P = pair_P < n_pairs
    mask = (row_R < n_rows)[:, None] & is_pair_P[None, :]
    at_RP = row_R[:, None] * (2 * n_pairs) + pair_P[None, :]
    first_RP = tl.load(x + at_RP, mask=mask, other=0).to(tl.float32)
    second_RP = tl.load(x + at_RP + n_pairs, mask=mask, other=0).to(tl.float32)
    squares_R = tl.sum(first_RP * first_RP + second_RP * second_RP, 1)
    scale_R = tl.rsqrt(squares_R / (2 * n_pairs) + eps)
    first_P = tl.load(weight + pair_P, mask=is_pair_P, other=0).to(tl.float32)
    second_P = tl.load(weight + pair_P + n_pairs, mask=is_pair_P, other=0).to(tl.float32)
    first_RP = (first_RP * scale_R[:, None] * first_P[None, :]).to(type).to(tl.float32)
    second_RP = (second_RP * scale_R[:, None] * second_P[None, :]).to(type).to(tl.float32)
    # both halves of the tables are the same; all rows of a batch may share them
    angle_RP = ((row_R // n_heads) % n_angles)[:, None] * (2 * n_pairs) + pair_P[None, :]
    cos_RP = tl.load(cos + angle_RP, mask=mask, other=0).to(tl.float32)
    sin_RP = tl.load(sin + angle_RP, mask=mask, other=0).to(tl.float32)
    turned_RP = (first_RP * cos_RP).to(type).to(tl.float32) - (second_RP * sin_RP).to(type).to(tl.float32)
    tl.store(out + at_RP, turned_RP, mask=mask)
    turned_RP = (second_RP * cos_RP).to(type).to(tl.float32) + (first_RP * sin_RP).to(type).to(tl.float32)
    tl.store(out + at_RP + n_pairs, turned_RP, mask=mask)
