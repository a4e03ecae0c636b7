"""RMS norm, the residual sum behind it and the layer's scalar in one Triton pass over the rows.

Every step rounds where the reference does, so only the order of the sum of squares differs.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK_ELEMENTS = 2048
"""Of a program at least: short rows, such as those of heads, share one. Chosen."""


def fused_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    eps: float,
    residual: torch.Tensor | None = None,
    scalar: torch.Tensor | None = None,
) -> torch.Tensor:
    """Returns what `rms_norm` does, or with `residual` what `residual_norm` does."""
    x = x.contiguous()
    out, n_columns = torch.empty_like(x), x.shape[-1]
    n_rows, block = x.numel() // n_columns, triton.next_power_of_2(n_columns)
    n_together = max(1, BLOCK_ELEMENTS // block)
    others = (weight, None if residual is None else residual.contiguous(), scalar)
    _norm_kernel[(triton.cdiv(n_rows, n_together),)](
        x, *(x if other is None else other for other in others), out, n_rows, n_columns, eps,
        HAS_WEIGHT=weight is not None, HAS_RESIDUAL=residual is not None, HAS_SCALAR=scalar is not None,
        BLOCK_ROWS=n_together, BLOCK_COLUMNS=block,
    )  # fmt: skip
    return out


@triton.jit
def _norm_kernel(
    x, weight, residual, scalar, out, n_rows, n_columns, eps,
    HAS_WEIGHT: tl.constexpr, HAS_RESIDUAL: tl.constexpr, HAS_SCALAR: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr,
):  # fmt: skip
    type = out.dtype.element_ty
    row_R = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    column_C = tl.arange(0, BLOCK_COLUMNS)
    mask = (row_R < n_rows)[:, None] & (column_C < n_columns)[None, :]
    at_RC = row_R[:, None] * n_columns + column_C[None, :]
    x_RC = tl.load(x + at_RC, mask=mask, other=0).to(tl.float32)
    x_RC *= tl.rsqrt(tl.sum(x_RC * x_RC, 1) / n_columns + eps)[:, None]
    if HAS_WEIGHT:
        x_RC *= tl.load(weight + column_C, mask=column_C < n_columns, other=0).to(tl.float32)[None, :]
    if HAS_RESIDUAL:
        x_RC = tl.load(residual + at_RC, mask=mask, other=0).to(tl.float32) + x_RC.to(type).to(tl.float32)
    if HAS_SCALAR:
        x_RC = x_RC.to(type).to(tl.float32) * tl.load(scalar).to(tl.float32)
    tl.store(out + at_RC, x_RC, mask=mask)
