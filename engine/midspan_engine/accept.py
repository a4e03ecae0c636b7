"""The rules of DiffusionGemma's sampler: which slots a step accepts, at what temperature, and when a canvas is done."""

from __future__ import annotations

import torch

from midspan_engine.config import GenerationConfig


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


def temperature(generation: GenerationConfig, step: int) -> torch.Tensor:
    """Returns the temperature with `step` steps to go, counting this one: a line from t_max down to almost t_min.

    In fp32 tensor arithmetic, as the reference computes it; in double precision the last bit differs.
    """
    share = torch.tensor(step, dtype=torch.int32) / generation.max_denoising_steps
    return generation.t_min + (generation.t_max - generation.t_min) * share


def is_settled(drafts: list[torch.Tensor], entropy_BC: torch.Tensor, generation: GenerationConfig) -> torch.Tensor:
    """Tells, as a bool [], whether the canvas is done: its last drafts are equal and its mean entropy is low.

    These are stability_threshold + 1 drafts; `drafts` ends with the current one. The mean is over all slots, in nats,
    and must be below confidence_threshold. The answer stays where the drafts are, so that nobody waits for it here.
    """
    n_equal = generation.stability_threshold
    if len(drafts) <= n_equal:
        return torch.zeros((), dtype=torch.bool, device=entropy_BC.device)
    is_certain = entropy_BC.mean() < generation.confidence_threshold
    for draft in drafts[len(drafts) - 1 - n_equal : -1]:
        is_certain &= (drafts[-1] == draft).all()
    return is_certain
