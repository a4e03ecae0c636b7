"""The statistics of `row_statistics` and `row_samples` in one Triton pass, the vocabulary split over many programs.

A row of the released vocabulary is a megabyte of fp32, which the references read again for every step. Here a program
reads its piece once and leaves its maximum, where that is, and two sums; torch combines these few numbers. Rounding
differs from the references' in the last bits. Suffixes: R rows, V vocabulary, C pieces of a row.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK_TOKENS = 4096
"""Logits of a piece: 64 pieces a row of the released vocabulary. Chosen, not measured yet."""


def split_statistics(
    logits_RV: torch.Tensor,
    temperature_R: torch.Tensor | None = None,
    seed_R: torch.Tensor | None = None,
    cap: float | None = None,
) -> tuple[torch.Tensor, ...]:
    """Returns argmax (int64), entropy in nats, confidence and log-sum-exp (fp32) of softmax(z), each [R].

    With seeds a token drawn from it comes last; z as in `row_samples`. A logit may be -inf, but not all of a row.
    """
    n_rows, n_tokens = logits_RV.shape
    n_pieces = triton.cdiv(n_tokens, BLOCK_TOKENS)
    sums = torch.empty(4, n_rows, n_pieces, dtype=torch.float32, device=logits_RV.device)
    tops = torch.empty(2, n_rows, n_pieces, dtype=torch.int64, device=logits_RV.device)
    logits_RV = logits_RV.contiguous()
    _piece_kernel[(n_rows, n_pieces)](
        logits_RV, *(logits_RV if of_rows is None else of_rows.contiguous() for of_rows in (temperature_R, seed_R)),
        sums, tops, n_tokens, n_rows * n_pieces, n_pieces,
        CAP=cap, IS_DIVIDED=temperature_R is not None, IS_DRAWN=seed_R is not None, BLOCK=BLOCK_TOKENS,
    )  # fmt: skip
    most_RC, total_RC, spread_RC, drawn_RC = sums
    at_R1 = most_RC.argmax(-1, keepdim=True)
    top_R1 = most_RC.gather(-1, at_R1)
    below_RC = most_RC - top_R1
    share_RC = below_RC.exp()
    total_R = (share_RC * total_RC).sum(-1)
    # a piece of -inf alone counts nothing, not 0 * -inf
    spread_R = (share_RC * (spread_RC + below_RC.clamp(min=torch.finfo(torch.float32).min) * total_RC)).sum(-1)
    log_total_R = total_R.log()
    found = (tops[0].gather(-1, at_R1).squeeze(-1), log_total_R - spread_R / total_R, 1 / total_R)
    if seed_R is None:
        return *found, top_R1.squeeze(-1) + log_total_R
    drawn_R = tops[1].gather(-1, drawn_RC.argmax(-1, keepdim=True)).squeeze(-1)
    return *found, top_R1.squeeze(-1) + log_total_R, drawn_R


@triton.jit
def _piece_kernel(
    logits, temperatures, seeds, sums, tops, n_tokens, n_sums, n_pieces,
    CAP: tl.constexpr, IS_DIVIDED: tl.constexpr, IS_DRAWN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, piece = tl.program_id(0).to(tl.int64), tl.program_id(1)
    token = piece * BLOCK + tl.arange(0, BLOCK)
    z = tl.load(logits + row * n_tokens + token, mask=token < n_tokens, other=float("-inf")).to(tl.float32)
    if CAP is not None:
        # tanh(x) is 1 - 2 / (exp(2x) + 1)
        z = tl.where(z == float("-inf"), z, CAP - 2 * CAP / (tl.exp(2 * z / CAP) + 1))
    if IS_DIVIDED:
        z = z / tl.load(temperatures + row)
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
