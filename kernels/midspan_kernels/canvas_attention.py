"""Attention of a canvas over its context and itself, without copying either beside the other.

The context's keys and values stay where the cache holds them: a preallocated buffer, or a ring of a sliding layer.
Keys carry their position in their rotation, so their order is nothing to attention. Shape suffixes: B rows, C queries,
S places of the cache, K slots of the canvas, N heads, G kv heads, D head dim.
"""

from __future__ import annotations

import torch

from midspan_kernels.attention import attention
from midspan_kernels.choice import prefers_triton

KeysValues = tuple[torch.Tensor, torch.Tensor]


def canvas_attention(
    q_BCND: torch.Tensor, context: KeysValues | None, own: KeysValues, span: torch.Tensor | None = None
) -> torch.Tensor:
    """Returns [B, C, N, D] with scale 1: every query sees the context and all of its row's own slots.

    `context` are keys and values [B, S, G, D], or [1, S, G, D] of all rows; `own` are [B, K, G, D]. Position p of the
    context is held at place p % S, and `span`, integers on the device, says which positions are seen: from its first
    number up to its second, at most S of them. Without it all places are.
    """
    if prefers_triton(q_BCND):
        # Only there is Triton needed, and it takes time to import.
        from midspan_kernels.split_attention import can_run, split_attention

        if can_run(q_BCND.shape[-1]):
            return split_attention(q_BCND, context, own, span)
    if context is not None and span is not None:
        place_K = torch.arange(*span.tolist(), device=q_BCND.device) % context[0].shape[1]
        context = (context[0][:, place_K], context[1][:, place_K])
    seen = own if context is None else (_behind(context[0], own[0]), _behind(context[1], own[1]))
    return attention(q_BCND, *seen, None, is_causal=False)


def _behind(context: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    if len(context) != len(own):
        context = context.expand(len(own), -1, -1, -1)
    return torch.cat([context, own], dim=1)
