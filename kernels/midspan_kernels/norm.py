"""Root-mean-square normalisation, alone and with the residual stream that it goes into."""

from __future__ import annotations

import torch

from midspan_kernels.choice import prefers_triton


def rms_norm(x: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
    """Normalises the last dimension of `x` by its root mean square, in fp32, and casts back at the end.

    `weight` multiplies plainly (not 1 + weight, unlike Gemma 1-3); None leaves it out.
    Source: DiffusionGemma's RMSNorm; eps is `rms_norm_eps` of the config.
    """
    if prefers_triton(x):
        # Only there is Triton needed, and it takes time to import.
        from midspan_kernels.fused_norm import fused_norm

        return fused_norm(x, weight, eps)
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    if weight is not None:
        wide = wide * weight.float()
    return wide.to(x.dtype)


def residual_norm(
    x: torch.Tensor, branch: torch.Tensor, weight: torch.Tensor, eps: float, scalar: torch.Tensor | None = None
) -> torch.Tensor:
    """Returns x plus the normalised branch, times `scalar` [1] if there is one."""
    if prefers_triton(x):
        # as above
        from midspan_kernels.fused_norm import fused_norm

        return fused_norm(branch, weight, eps, x, scalar)
    x = x + rms_norm(branch, weight, eps)
    return x if scalar is None else x * scalar
