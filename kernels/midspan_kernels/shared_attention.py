"""Attention of several short rows behind one shared context, as training needs it.

Copying the context to every row that goes on from it costs more than the attention itself: its scores are one
large product over all rows of a context instead. Shape suffixes: B rows, R contexts, K = B / R rows of a context,
S slots of a row, L tokens of a context, N heads, G kv heads, J = N / G, D head dim.
"""

from __future__ import annotations

import torch

from midspan_kernels.attention import KeysValues


def shared_context_attention(
    q_BSND: torch.Tensor, context: KeysValues, own: KeysValues, n_context_B: torch.Tensor, *, is_causal: bool
) -> torch.Tensor:
    """Returns [B, S, N, D]: row b sees the first n_context[b] tokens of context b // K and its own slots.

    `context` are keys and values [R, L, G, D], `own` those of the rows, [B, S, G, D]; with `is_causal` a slot sees no
    later one. The scale is 1. Equal to `scaled_dot_product_attention` over the copied context, up to rounding.
    """
    (n_rows, n_slots, n_heads, dim), (n_contexts, n_tokens, n_groups, _) = q_BSND.shape, context[0].shape
    of_each, per_group = n_rows // n_contexts, n_heads // n_groups
    q_RGKJSD = q_BSND.view(n_contexts, of_each, n_slots, n_groups, per_group, dim).permute(0, 3, 1, 4, 2, 5)
    k_RGLD, v_RGLD = (t.transpose(1, 2) for t in context)
    k_RGKSD, v_RGKSD = (t.view(n_contexts, of_each, n_slots, n_groups, dim).permute(0, 3, 1, 2, 4) for t in own)
    far = q_RGKJSD.flatten(2, 4) @ k_RGLD.transpose(-1, -2)
    near = q_RGKJSD.flatten(3, 4) @ k_RGKSD.transpose(-1, -2)
    far_RGKJSL = far.view(*q_RGKJSD.shape[:-1], n_tokens).float()
    near_RGKJSS = near.view(*q_RGKJSD.shape[:-1], n_slots).float()
    is_hidden_BL = torch.arange(n_tokens, device=q_BSND.device) >= n_context_B[:, None]
    far_RGKJSL = far_RGKJSL.masked_fill(is_hidden_BL.view(n_contexts, 1, of_each, 1, 1, n_tokens), -torch.inf)
    if is_causal:
        later_SS = torch.ones(n_slots, n_slots, dtype=torch.bool, device=q_BSND.device).triu(1)
        near_RGKJSS = near_RGKJSS.masked_fill(later_SS, -torch.inf)
    # one softmax over both parts; a slot always sees itself, so the maximum is finite
    top = torch.maximum(far_RGKJSL.amax(-1, keepdim=True), near_RGKJSS.amax(-1, keepdim=True)).detach()
    far_RGKJSL, near_RGKJSS = (far_RGKJSL - top).exp(), (near_RGKJSS - top).exp()
    total = far_RGKJSL.sum(-1, keepdim=True) + near_RGKJSS.sum(-1, keepdim=True)
    from_far = far_RGKJSL.to(q_BSND.dtype).flatten(2, 4) @ v_RGLD
    from_near = near_RGKJSS.to(q_BSND.dtype).flatten(3, 4) @ v_RGKSD
    sum_RGKJSD = from_far.view_as(q_RGKJSD).float() + from_near.view_as(q_RGKJSD).float()
    out_RGKJSD = (sum_RGKJSD / total).to(q_BSND.dtype)
    return out_RGKJSD.permute(0, 2, 4, 1, 3, 5).reshape(q_BSND.shape)
