"""What the sampler reads from a row of logits: the best token, its probability and the entropy."""

from __future__ import annotations

from typing import NamedTuple

import torch

from midspan_kernels.choice import prefers_triton
from midspan_kernels.row_logits import RowLogits

_TILE_ELEMENTS = 1 << 24
"""Logits taken at once: 64 rows of a 262144-token vocabulary, so a temporary takes 64 MiB of fp32 and not 256."""


class RowStatistics(NamedTuple):
    """Statistics of logit rows; every field has the rows' shape without the vocabulary."""

    argmax: torch.Tensor
    """The most probable token, int64."""
    entropy: torch.Tensor
    """Entropy in nats, fp32."""
    confidence: torch.Tensor
    """Probability of the most probable token, fp32."""


def row_statistics(logits: torch.Tensor) -> RowStatistics:
    """Returns the statistics of softmax(logits) for rows [..., V], computed in fp32 tile by tile.

    The entropy equals that of `torch.distributions.Categorical(logits=logits)`, operation for operation: the acceptance
    rule compares sums of it with a bound, and parity with the reference needs the same roundings. On a GPU a kernel of
    Triton's takes its place, which rounds in its own way.
    """
    flat_RV = logits.flatten(0, -2)
    if prefers_triton(logits):
        # Only there is Triton needed, and it takes time to import.
        from midspan_kernels.split_statistics import split_statistics

        found = split_statistics(RowLogits(flat_RV))
        return RowStatistics(*(of_rows.view(logits.shape[:-1]) for of_rows in found))
    n_rows = max(1, _TILE_ELEMENTS // logits.shape[-1])
    tiles = [_tile_statistics(tile_RV) for tile_RV in torch.split(flat_RV, n_rows)]
    argmax, entropy, confidence = (torch.cat(parts).view(logits.shape[:-1]) for parts in zip(*tiles, strict=True))
    return RowStatistics(argmax, entropy, confidence)


def _tile_statistics(logits_RV: torch.Tensor) -> RowStatistics:
    z_RV = logits_RV.float()
    log_p_RV = z_RV - z_RV.logsumexp(-1, keepdim=True)
    p_RV = log_p_RV.softmax(-1)
    argmax_R = z_RV.argmax(-1)
    # A token ruled out by a logit of -inf counts 0 and not 0 * -inf.
    entropy_R = -(log_p_RV.clamp(min=torch.finfo(torch.float32).min) * p_RV).sum(-1)
    return RowStatistics(argmax_R, entropy_R, p_RV.gather(-1, argmax_R[:, None]).squeeze(-1))
