"""The statistics of `row_statistics` and `row_samples` in one Triton pass, the vocabulary split over many programs.

A row of the released vocabulary is a megabyte of fp32, which the references read again for every step. Here a program
reads its piece once, as the output head left it, caps and divides it in its registers and leaves its maximum, where
that is, and two sums; torch combines these few numbers. Rounding differs from the references' in the last bits.
Suffixes: R rows, V vocabulary, C pieces of a row.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from midspan_kernels.fused_row_logits import row_values
from midspan_kernels.row_logits import RowLogits

BLOCK_TOKENS = 4096
"""Logits of a piece: 64 pieces a row of the released vocabulary. Chosen, not measured yet."""


def split_statistics(logits: RowLogits, seed_R: torch.Tensor | None = None) -> tuple[torch.Tensor, ...]:
    """Returns argmax (int64), entropy in nats and confidence (fp32) of softmax(logits), each [R].

    With seeds a token drawn from it comes last. A logit may be -inf, but not all of a row.
    """
    n_rows, n_tokens = logits.z.shape
    z_RV = logits.z.contiguous()
    n_pieces = triton.cdiv(n_tokens, BLOCK_TOKENS)
    sums = torch.empty(4, n_rows, n_pieces, dtype=torch.float32, device=z_RV.device)
    tops = torch.empty(2, n_rows, n_pieces, dtype=torch.int64, device=z_RV.device)
    _piece_kernel[(n_rows, n_pieces)](
        z_RV, z_RV if seed_R is None else seed_R.contiguous(), sums, tops, n_tokens, n_rows * n_pieces, n_pieces,
        logits.cap or 0.0, logits.temperature, IS_CAPPED=logits.cap is not None, IS_DRAWN=seed_R is not None,
        BLOCK=BLOCK_TOKENS,
    )  # fmt: skip
    most_RC, total_RC, spread_RC, drawn_RC = sums
    at_R1 = most_RC.argmax(-1, keepdim=True)
    below_RC = most_RC - most_RC.gather(-1, at_R1)
    share_RC = below_RC.exp()
    total_R = (share_RC * total_RC).sum(-1)
    # a piece of -inf alone counts nothing, not 0 * -inf
    spread_R = (share_RC * (spread_RC + below_RC.clamp(min=torch.finfo(torch.float32).min) * total_RC)).sum(-1)
    found = (tops[0].gather(-1, at_R1).squeeze(-1), total_R.log() - spread_R / total_R, 1 / total_R)
    if seed_R is None:
        return found
    return *found, tops[1].gather(-1, drawn_RC.argmax(-1, keepdim=True)).squeeze(-1)


@triton.jit
def _piece_kernel(
    logits, seeds, sums, tops, n_tokens, n_sums, n_pieces, cap, temperature, IS_CAPPED: tl.constexpr,
    IS_DRAWN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, piece = tl.program_id(0).to(tl.int64), tl.program_id(1)
    token = piece * BLOCK + tl.arange(0, BLOCK)
    z = tl.load(logits + row * n_tokens + token, mask=token < n_tokens, other=float("-inf"))
    z = row_values(z.to(tl.float32), cap, temperature, IS_CAPPED)
    most, top = tl.max(z, 0, return_indices=True)
    below = z - tl.where(most == float("-inf"), 0.0, most)
    share = tl.exp(below)
    at = row * n_pieces + piece
    tl.store(sums + at, most)
    tl.store(sums + n_sums + at, tl.sum(share, 0))
    tl.store(sums + 2 * n_sums + at, tl.sum(tl.where(share > 0, below, 0.0) * share, 0))
    tl.store(tops + at, piece * BLOCK + top.to(tl.int64))
    if IS_DRAWN:
        u = tl.randint(tl.load(seeds + row), token).to(tl.uint32, bitcast=True).to(tl.float32)
        u = u * 2.3283064365386963e-10 + 1.1641532182693481e-10
        # -log(1 - u), near 0 by its series
        wait = tl.where(u < 0.015625, u * (1 + u * (0.5 + u * (0.3333333333333333 + u * 0.25))), -tl.log(1 - u))
        most, top = tl.max(z - tl.log(wait), 0, return_indices=True)
        tl.store(sums + 3 * n_sums + at, most)
        tl.store(tops + n_sums + at, piece * BLOCK + top.to(tl.int64))
