"""Which slots a denoising step accepts."""

from __future__ import annotations

import torch


def entropy_bound(entropy_BC: torch.Tensor, bound: float) -> torch.Tensor:
    """Returns a mask [B, C], true for the slots that one step accepts: the most certain ones of each row.

    A slot is accepted if the entropies (nats) of all more certain slots of its row add up to at most `bound`; that sum
    bounds how much the slots accepted together can depend on each other. The most certain slot is always accepted.
    Source: the entropy-bounded sampler, arXiv 2505.24857; `sampler_config.entropy_bound` of generation_config.json.
    """
    ascending_BC, order_BC = torch.sort(entropy_BC, dim=-1)
    # Computed as in the reference, whose rounding decides at the bound: the inclusive sum less the slot's own.
    before_BC = torch.cumsum(ascending_BC, dim=-1) - ascending_BC
    return torch.zeros_like(entropy_BC, dtype=torch.bool).scatter(-1, order_BC, before_BC <= bound)
