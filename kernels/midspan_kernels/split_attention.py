"""The attention of a canvas in two Triton kernels: the keys in pieces, then the pieces' results together.

One canvas has few queries, so a program per head and block of queries would leave most of a GPU idle: the keys are
divided too (as in Flash-Decoding). A program takes the queries of all heads that share a kv head, walks over its share
of the context and of the canvas, each where it lies, and leaves an unnormalised sum with its maximum and total. What
counts of both is read on the device: shapes and grid depend on the buffers alone, so a graph can hold both launches
while the document grows or another takes its turn. Suffixes as in `canvas_attention`, and P pieces, M queries of a kv
head: slot by slot the N / G heads.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from midspan_kernels.attention import KeysValues

PROGRAMS = 128
"""Wanted at least, about the multiprocessors of the GPUs aimed at (H100: 132). More would write more partial sums."""
BLOCK_KEYS = 32
"""Of a program's step. Chosen: keys and values of 32 tokens of head dim 512 take 64 KiB of shared memory."""


def split_attention(
    q_BCND: torch.Tensor, context: KeysValues | None, own: KeysValues, seen_B4: torch.Tensor | None
) -> torch.Tensor:
    """Returns what `canvas_attention` does."""
    (n_rows, n_queries, n_heads, dim), (_, n_slots, n_groups, _) = q_BCND.shape, own[0].shape
    q_BCND, own_k, own_v = q_BCND.contiguous(), own[0].contiguous(), own[1].contiguous()
    keys, values = (own_k, own_v) if context is None else _dense(*context)
    n_places = 0 if context is None else keys.shape[1]
    block_queries = _block_queries(dim)
    per_group = n_heads // n_groups
    n_blocks = triton.cdiv(n_queries * per_group, block_queries)
    n_key_blocks = triton.cdiv(n_places, BLOCK_KEYS) + triton.cdiv(n_slots, BLOCK_KEYS)
    n_pieces = min(triton.cdiv(PROGRAMS, n_rows * n_groups * n_blocks), n_key_blocks)
    sums_PBCND = torch.empty(n_pieces, *q_BCND.shape, dtype=torch.float32, device=q_BCND.device)
    tops_PBCN = torch.empty(sums_PBCND.shape[:-1], dtype=torch.float32, device=q_BCND.device)
    totals_PBCN = torch.empty_like(tops_PBCN)
    _piece_kernel[(n_blocks, n_rows * n_groups, n_pieces)](
        q_BCND, keys, values, own_k, own_v, q_BCND if seen_B4 is None else seen_B4.contiguous(), sums_PBCND, tops_PBCN,
        totals_PBCN, n_rows, n_queries, n_slots, n_groups, n_places, keys.stride(1), keys.stride(0) * (len(keys) > 1),
        HAS_SEEN=seen_B4 is not None, PER_GROUP=per_group, DIM=dim, BLOCK_M=block_queries, BLOCK_K=BLOCK_KEYS,
        num_warps=8, num_stages=2,
    )  # fmt: skip
    out_BCND = torch.empty_like(q_BCND)
    n_all = n_rows * n_queries * n_heads
    _joining_kernel[(n_all,)](sums_PBCND, tops_PBCN, totals_PBCN, out_BCND, n_all, n_pieces, DIM=dim)
    return out_BCND


def can_run(dim: int) -> bool:
    """Tells whether the kernels know this head dim."""
    return dim in (16, 32, 64, 128, 256, 512)


def _block_queries(dim: int) -> int:
    """Returns how many queries a program takes: as many as its registers hold sums of."""
    return 64 if dim <= 256 else 32


def _dense(keys: torch.Tensor, values: torch.Tensor) -> KeysValues:
    """Returns keys and values [.., S, G, D]: places may lie apart, as in a cut of a buffer, but not what is in one."""
    is_dense = keys[0, 0].is_contiguous() and values[0, 0].is_contiguous() and keys.stride() == values.stride()
    return (keys, values) if is_dense else (keys.contiguous(), values.contiguous())


@triton.jit
def _piece_kernel(
    q, keys, values, own_keys, own_values, seen, sums, tops, totals,
    n_rows, n_queries, n_slots, n_groups, n_places, place_stride, row_stride,
    HAS_SEEN: tl.constexpr, PER_GROUP: tl.constexpr, DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    row, group = tl.program_id(1) // n_groups, tl.program_id(1) % n_groups
    piece, n_pieces = tl.program_id(2), tl.num_programs(2)
    query_M = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    is_query_M = query_M < n_queries * PER_GROUP
    slot_M, head_M = query_M // PER_GROUP, group * PER_GROUP + query_M % PER_GROUP
    at_M = (row.to(tl.int64) * n_queries + slot_M) * (n_groups * PER_GROUP) + head_M
    part_D = tl.arange(0, DIM)
    q_MD = tl.load(q + at_M[:, None] * DIM + part_D[None, :], mask=is_query_M[:, None], other=0)
    sum_MD = tl.zeros((BLOCK_M, DIM), tl.float32)
    top_M = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total_M = tl.zeros((BLOCK_M,), tl.float32)

    held, start, n_seen, n_own = row, 0, n_places, n_slots
    if HAS_SEEN:
        held = tl.load(seen + row * 4).to(tl.int32)
        start = tl.load(seen + row * 4 + 1).to(tl.int32)
        n_seen = tl.load(seen + row * 4 + 2).to(tl.int32) - start
        n_own = tl.load(seen + row * 4 + 3).to(tl.int32)
    n_far = tl.cdiv(n_seen, BLOCK_K)
    last = n_far + tl.cdiv(n_own, BLOCK_K)
    share = tl.cdiv(last, n_pieces)  # blocks of keys, those of the canvas last
    first, end = piece * share, (piece + 1) * share
    for block in range(tl.minimum(first, n_far), tl.minimum(end, n_far)):
        key_K = block * BLOCK_K + tl.arange(0, BLOCK_K)
        place_K = ((start + key_K) % n_places).to(tl.int64)
        at_K = held.to(tl.int64) * row_stride + place_K * place_stride + group * DIM
        sum_MD, top_M, total_M = _step(q_MD, keys, values, at_K, key_K < n_seen, sum_MD, top_M, total_M, DIM)
    for block in range(tl.maximum(first, n_far), tl.minimum(end, last)):
        key_K = (block - n_far) * BLOCK_K + tl.arange(0, BLOCK_K)
        at_K = ((row.to(tl.int64) * n_slots + key_K) * n_groups + group) * DIM
        sum_MD, top_M, total_M = _step(
            q_MD, own_keys, own_values, at_K, key_K < n_own, sum_MD, top_M, total_M, DIM
        )  # fmt: skip

    left_M = (piece.to(tl.int64) * n_rows * n_queries * n_groups) * PER_GROUP + at_M
    tl.store(sums + left_M[:, None] * DIM + part_D[None, :], sum_MD, mask=is_query_M[:, None])
    tl.store(tops + left_M, top_M, mask=is_query_M)
    tl.store(totals + left_M, total_M, mask=is_query_M)


@triton.jit
def _step(q_MD, keys, values, at_K, is_key_K, sum_MD, top_M, total_M, DIM: tl.constexpr):
    """Returns sums, maxima and totals with a block of keys more, one of which at least is there."""
    part_D = tl.arange(0, DIM)
    k_DK = tl.load(keys + at_K[None, :] + part_D[:, None], mask=is_key_K[None, :], other=0)
    score_MK = tl.dot(q_MD, k_DK, input_precision="ieee")
    score_MK = tl.where(is_key_K[None, :], score_MK, float("-inf"))
    higher_M = tl.maximum(top_M, tl.max(score_MK, 1))
    kept_M = tl.exp(top_M - higher_M)
    p_MK = tl.exp(score_MK - higher_M[:, None])
    v_KD = tl.load(values + at_K[:, None] + part_D[None, :], mask=is_key_K[:, None], other=0)
    sum_MD = tl.dot(p_MK.to(v_KD.dtype), v_KD, sum_MD * kept_M[:, None], input_precision="ieee")
    return sum_MD, higher_M, total_M * kept_M + tl.sum(p_MK, 1)


@triton.jit
def _joining_kernel(sums, tops, totals, out, n_all, n_pieces, DIM: tl.constexpr):
    at = tl.program_id(0).to(tl.int64)
    part_D = tl.arange(0, DIM)
    sum_D = tl.zeros((DIM,), tl.float32)
    total = 0.0
    top = float("-inf")
    for _ in range(n_pieces):
        of_piece = tl.load(tops + at)
        higher = tl.maximum(top, of_piece)
        kept, share = tl.exp(top - higher), tl.exp(of_piece - higher)
        sum_D = sum_D * kept + share * tl.load(sums + at * DIM + part_D)
        total = total * kept + share * tl.load(totals + at)
        top = higher
        at += n_all
    tl.store(out + tl.program_id(0).to(tl.int64) * DIM + part_D, sum_D / total)
