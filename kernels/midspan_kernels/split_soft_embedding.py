"""Soft embeddings in one Triton pass over logits and embedding, the vocabulary split over many programs.

The reference holds the probabilities of a whole vocabulary three times over; here a program has a tile of them in its
registers, of logits that it caps and divides there. It multiplies its piece of the vocabulary, unnormalised, with a
strip of the embedding's columns and leaves the sum with the piece's maximum and total; torch puts the few pieces
together. Suffixes: R rows, V vocabulary, H hidden, P pieces.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from midspan_kernels.fused_row_logits import row_values
from midspan_kernels.row_logits import RowLogits

PROGRAMS = 264
"""Wanted at least, two for each multiprocessor of the GPUs aimed at (H100: 132)."""
BLOCK_TOKENS, BLOCK_COLUMNS, STAGES = 32, 128, 5
"""Of a program's step: 8 KiB of the embedding, of which four are on their way. Chosen; with twice the tokens the
registers of capped logits spill on sm_80, 89 and 120 (`tests/test_kernels_compile.py`).
"""


def split_soft_embedding(logits: RowLogits, weight_VH: torch.Tensor) -> torch.Tensor:
    """Returns softmax(logits) @ weight, [R, H]. A logit may be -inf, but not all of a row."""
    (n_rows, n_tokens), n_columns = logits.z.shape, weight_VH.shape[1]
    block_rows = max(16, min(64, triton.next_power_of_2(n_rows)))
    n_tiles = triton.cdiv(n_rows, block_rows) * triton.cdiv(n_columns, BLOCK_COLUMNS)
    n_blocks = triton.cdiv(n_tokens, BLOCK_TOKENS)
    n_pieces = min(triton.cdiv(PROGRAMS, n_tiles), n_blocks)
    sums_PRH = torch.empty(n_pieces, n_rows, n_columns, dtype=torch.float32, device=weight_VH.device)
    tops_PR = torch.empty(n_pieces, n_rows, dtype=torch.float32, device=weight_VH.device)
    totals_PR = torch.empty_like(tops_PR)
    grid = (triton.cdiv(n_rows, block_rows), triton.cdiv(n_columns, BLOCK_COLUMNS), n_pieces)
    _piece_kernel[grid](
        logits.z.contiguous(), weight_VH.contiguous(), sums_PRH, tops_PR, totals_PR, n_rows, n_tokens, n_columns,
        triton.cdiv(n_blocks, n_pieces), logits.cap or 0.0, logits.temperature, IS_CAPPED=logits.cap is not None,
        BLOCK_R=block_rows, BLOCK_V=BLOCK_TOKENS, BLOCK_H=BLOCK_COLUMNS,
        num_warps=4 if block_rows == 16 else 8, num_stages=STAGES,
    )  # fmt: skip
    share_PR = (tops_PR - tops_PR.amax(0)).exp()
    share_PR /= (share_PR * totals_PR).sum(0)
    return (sums_PRH * share_PR[..., None]).sum(0).to(weight_VH.dtype)


@triton.jit
def _piece_kernel(
    logits, weight, sums, tops, totals, n_rows, n_tokens, n_columns, n_blocks, cap, temperature,
    IS_CAPPED: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_H: tl.constexpr,
):  # fmt: skip
    type = weight.dtype.element_ty
    piece = tl.program_id(2)
    row_R = tl.program_id(0).to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R)
    is_row_R = row_R < n_rows
    column_H = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    is_column_H = column_H < n_columns
    sum_RH = tl.zeros((BLOCK_R, BLOCK_H), tl.float32)
    top_R = tl.full((BLOCK_R,), float("-inf"), tl.float32)
    total_R = tl.zeros((BLOCK_R,), tl.float32)
    for block in range(piece * n_blocks, tl.minimum((piece + 1) * n_blocks, tl.cdiv(n_tokens, BLOCK_V))):
        token_V = (block * BLOCK_V + tl.arange(0, BLOCK_V)).to(tl.int64)
        is_token_V = token_V < n_tokens
        mask = is_row_R[:, None] & is_token_V[None, :]
        z_RV = tl.load(logits + row_R[:, None] * n_tokens + token_V[None, :], mask=mask, other=float("-inf"))
        z_RV = row_values(z_RV.to(tl.float32), cap, temperature, IS_CAPPED).to(type).to(tl.float32)
        higher_R = tl.maximum(top_R, tl.max(z_RV, 1))
        base_R = tl.where(higher_R == float("-inf"), 0.0, higher_R)  # so far no token that may be
        kept_R = tl.exp(top_R - base_R)
        p_RV = tl.exp(z_RV - base_R[:, None])
        mask = is_token_V[:, None] & is_column_H[None, :]
        weight_VH = tl.load(weight + token_V[:, None] * n_columns + column_H[None, :], mask=mask, other=0)
        sum_RH = tl.dot(p_RV.to(type), weight_VH, sum_RH * kept_R[:, None], input_precision="ieee")
        top_R, total_R = higher_R, total_R * kept_R + tl.sum(p_RV, 1)
    left_R = piece.to(tl.int64) * n_rows + row_R
    mask = is_row_R[:, None] & is_column_H[None, :]
    tl.store(sums + left_R[:, None] * n_columns + column_H[None, :], sum_RH, mask=mask)
    if tl.program_id(1) == 0:
        tl.store(tops + left_R, top_R, mask=is_row_R)
        tl.store(totals + left_R, total_R, mask=is_row_R)
