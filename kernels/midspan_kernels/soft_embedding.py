"""The mean of the token embeddings under the probabilities of logits, which the next step is conditioned on."""

from __future__ import annotations

import torch

from midspan_kernels.choice import prefers_triton
from midspan_kernels.row_logits import RowLogits


def soft_embedding(logits: RowLogits, weight_VH: torch.Tensor) -> torch.Tensor:
    """Returns softmax(logits) @ weight, [..., H], for logits [..., V].

    What these stand for and the probabilities are rounded to the weights' type, as DiffusionGemma does.
    """
    if prefers_triton(logits.z):
        # Only there is Triton needed, and it takes time to import.
        from midspan_kernels.split_soft_embedding import split_soft_embedding

        rows_RV = logits._replace(z=logits.z.flatten(0, -2))
        return split_soft_embedding(rows_RV, weight_VH).view(*logits.z.shape[:-1], -1)
    return logits.values().to(weight_VH.dtype).softmax(-1, dtype=torch.float32).to(weight_VH.dtype) @ weight_VH
