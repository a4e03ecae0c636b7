"""Scaled dot-product attention over grouped heads."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from midspan_kernels.causal_attention import causal_attention

KeysValues = tuple[torch.Tensor, torch.Tensor]
"""Keys and values, each [B, L, G, D]."""

_FEW_QUERIES, _MANY_KEYS = 3, 128
"""There torch's bf16 attention takes a slow path on CPUs: 201 us for one query over 464 keys, 48 in fp32."""


def attention(
    q_BLND: torch.Tensor, k_BKGD: torch.Tensor, v_BKGD: torch.Tensor, mask: torch.Tensor | None, *, is_causal: bool
) -> torch.Tensor:
    """Returns [B, L, N, D] with scale 1; `mask`, broadcast to [B, N, L, K], is true where a key is visible."""
    if is_causal and torch.is_grad_enabled() and q_BLND.device.type == "cpu":
        return causal_attention(q_BLND, k_BKGD, v_BKGD)
    if q_BLND.is_cuda and mask is not None and q_BLND.shape[2] != k_BKGD.shape[2]:
        return folded_attention(q_BLND, k_BKGD, v_BKGD, mask)
    given = q_BLND.dtype
    is_slow = q_BLND.shape[1] <= _FEW_QUERIES and k_BKGD.shape[1] >= _MANY_KEYS
    if is_slow and q_BLND.device.type == "cpu":
        q_BLND, k_BKGD, v_BKGD = q_BLND.float(), k_BKGD.float(), v_BKGD.float()
    out_BNLD = F.scaled_dot_product_attention(
        q_BLND.transpose(1, 2),
        k_BKGD.transpose(1, 2),
        v_BKGD.transpose(1, 2),
        attn_mask=mask,
        is_causal=is_causal,
        scale=1.0,
        enable_gqa=q_BLND.shape[2] != k_BKGD.shape[2],
    )
    return out_BNLD.to(given).transpose(1, 2)


def folded_attention(
    q_BLND: torch.Tensor, k_BKGD: torch.Tensor, v_BKGD: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    """Returns what `attention` does, the queries of heads that share keys as queries of one head.

    None of torch's fused kernels for GPUs takes a mask and grouped heads; without one every head gets its own copy of
    its group's keys and values, in fp32.
    """
    (n_rows, n_queries, _, dim), (_, n_keys, n_groups, _) = q_BLND.shape, k_BKGD.shape
    q_BGJLD = q_BLND.reshape(n_rows, n_queries, n_groups, -1, dim).permute(0, 2, 3, 1, 4)
    mask_B1LK = mask.expand(n_rows, 1, n_queries, n_keys)
    out_BGMD = F.scaled_dot_product_attention(
        q_BGJLD.flatten(2, 3),
        k_BKGD.transpose(1, 2),
        v_BKGD.transpose(1, 2),
        attn_mask=mask_B1LK.repeat(1, 1, q_BGJLD.shape[2], 1),
        scale=1.0,
    )
    return out_BGMD.reshape(q_BGJLD.shape).permute(0, 3, 1, 2, 4).reshape(q_BLND.shape)
