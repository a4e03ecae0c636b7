"""The mean of the token embeddings under the probabilities of logits, which the next step is conditioned on."""

from __future__ import annotations

import torch

from midspan_kernels.choice import prefers_triton


def soft_embedding(logits: torch.Tensor, weight_VH: torch.Tensor) -> torch.Tensor:
    """Returns softmax(logits) @ weight, [..., H], for temperature-divided logits [..., V].

    Logits and probabilities are rounded to the weights' type, as DiffusionGemma does.
    """
    if prefers_triton(logits):
        # Only there is Triton needed, and it takes time to import.
        from midspan_kernels.split_soft_embedding import split_soft_embedding

        return split_soft_embedding(logits.flatten(0, -2), weight_VH).view(*logits.shape[:-1], -1)
    return logits.to(weight_VH.dtype).softmax(-1, dtype=torch.float32).to(weight_VH.dtype) @ weight_VH
