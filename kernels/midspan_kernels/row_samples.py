"""What a sampler wants of rows of logits: statistics and a token drawn, all at once."""

from __future__ import annotations

from typing import NamedTuple

import torch

from midspan_kernels.choice import prefers_triton
from midspan_kernels.counter_random import random_bits
from midspan_kernels.row_logits import RowLogits
from midspan_kernels.row_statistics import row_statistics


class RowSamples(NamedTuple):
    """Of each row, z being what its logits stand for."""

    argmax: torch.Tensor
    """The most probable token, int64."""
    entropy: torch.Tensor
    """Entropy of softmax(z) in nats, fp32."""
    confidence: torch.Tensor
    """Probability of the most probable token, fp32."""
    sample: torch.Tensor
    """A token drawn from softmax(z), int64."""


def row_samples(logits: RowLogits, seed_R: torch.Tensor) -> RowSamples:
    """Returns statistics and a draw, each [R], for logits [R, V], computed in fp32.

    A logit of -inf rules its token out. The draw depends on the int64 seed of its row alone (Gumbel's maximum over
    counter-based noise): a graph replays with other seeds, and a row draws the same beside others as alone.
    """
    if prefers_triton(logits.z):
        # Only there is Triton needed, and it takes time to import.
        from midspan_kernels.split_statistics import split_statistics

        return RowSamples(*split_statistics(logits, seed_R))
    z_RV = logits.values()
    uniform_RV = random_bits(seed_R, z_RV.shape[1]).float() * 2**-32 + 2**-33
    sample_R = (z_RV - torch.log(-torch.log1p(-uniform_RV))).argmax(-1)
    return RowSamples(*row_statistics(z_RV), sample_R)
