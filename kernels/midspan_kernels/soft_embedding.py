"""The mean of the token embeddings under the probabilities of logits, which the next step is conditioned on."""

from __future__ import annotations

import torch

from midspan_kernels.choice import prefers_triton


def soft_embedding(logits: torch.Tensor, weight_VH: torch.Tensor, top_k: int | None = None) -> torch.Tensor:
    """Returns softmax(logits) @ weight, [..., H], for temperature-divided logits [..., V].

    Logits and probabilities are rounded to the weights' type, as DiffusionGemma does. With `top_k` only the most
    probable tokens count, their probabilities made to sum to 1: it reads k rows of the weights instead of all.
    """
    is_tritons = prefers_triton(logits)
    if top_k is not None:
        best = logits.to(weight_VH.dtype).topk(top_k, dim=-1)
        p = best.values.softmax(-1, dtype=torch.float32).to(weight_VH.dtype)
        if is_tritons:
            # Only there is Triton needed, and it takes time to import.
            from midspan_kernels.split_soft_embedding import mixed_rows

            return mixed_rows(p.flatten(0, -2), best.indices.flatten(0, -2), weight_VH).view(*p.shape[:-1], -1)
        return (p[..., None, :] @ weight_VH[best.indices]).squeeze(-2)
    if is_tritons:
        # as above
        from midspan_kernels.split_soft_embedding import split_soft_embedding

        return split_soft_embedding(logits.flatten(0, -2), weight_VH).view(*logits.shape[:-1], -1)
    return logits.to(weight_VH.dtype).softmax(-1, dtype=torch.float32).to(weight_VH.dtype) @ weight_VH
