"""Root-mean-square normalisation."""

from __future__ import annotations

import torch


def rms_norm(x: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
    """Normalises the last dimension of `x` by its root mean square, in fp32, and casts back at the end.

    `weight` multiplies plainly (not 1 + weight, unlike Gemma 1-3); None leaves it out.
    Source: DiffusionGemma's RMSNorm; eps is `rms_norm_eps` of the config.
    """
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    if weight is not None:
        wide = wide * weight.float()
    return wide.to(x.dtype)
