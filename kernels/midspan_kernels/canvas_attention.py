"""Attention of a canvas over its context and itself, without copying either beside the other.

The context's keys and values stay where the cache holds them: a preallocated buffer, or a ring of a sliding layer. The
canvas' own are no part of that buffer. As slots behind the prefix they would lie in the way of what the encoder reads
behind it between two passes, and rows that share a prefix would need it once each; and a kernel that walks over two
tensors copies neither. Keys carry their position in their rotation, so their order is nothing to attention.

Shape suffixes: B rows, C queries, R rows of the cache, S places of one, K slots of the canvas, N heads, G kv heads, D
head dim.
"""

from __future__ import annotations

import torch

from midspan_kernels.attention import KeysValues, attention
from midspan_kernels.choice import prefers_triton


def canvas_attention(
    q_BCND: torch.Tensor, context: KeysValues | None, own: KeysValues, seen_B4: torch.Tensor | None = None
) -> torch.Tensor:
    """Returns [B, C, N, D] with scale 1: every query sees the context and all of its row's own slots.

    `own` are keys and values [B, K, G, D]; `context` are [B, S, G, D], or [1, S, G, D] of all rows, and seen whole
    unless `seen_B4` says otherwise: then they are [R, S, G, D], position p of a row is held at place p % S, and the
    integers, read on the device, are the row of the context, the first position that is seen of it, their end, at most
    S further, and how many own slots are seen. So shapes stay the same while documents and canvases differ.
    """
    if prefers_triton(q_BCND):
        # Only there is Triton needed, and it takes time to import.
        from midspan_kernels.split_attention import can_run, split_attention

        if can_run(q_BCND.shape[-1]):
            return split_attention(q_BCND, context, own, seen_B4)
    if context is None:
        return attention(q_BCND, *own, None, is_causal=False)
    if seen_B4 is None:
        # copied after all: on a CPU 440 tokens take 11 us a layer, 0.4 % of a pass of the small checkpoint
        pairs = zip(context, own, strict=True)
        keys, values = (torch.cat([far.expand(len(near), -1, -1, -1), near], 1) for far, near in pairs)
        return attention(q_BCND, keys, values, None, is_causal=False)
    row_B, first_B, end_B, n_own_B = seen_B4.long().unbind(1)
    place_S, slot_K = (torch.arange(t.shape[1], device=q_BCND.device) for t in (context[0], own[0]))
    position_BS = first_B[:, None] + (place_S - first_B[:, None]) % len(place_S)
    is_seen_BL = torch.cat([position_BS < end_B[:, None], slot_K < n_own_B[:, None]], 1)
    # what lies in places that are not seen need not even be numbers
    keys, values = (
        torch.cat([far[row_B], near], 1).where(is_seen_BL[..., None, None], 0)
        for far, near in zip(context, own, strict=True)
    )
    return attention(q_BCND, keys, values, is_seen_BL[:, None, None], is_causal=False)
