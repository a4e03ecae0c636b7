"""Rotary position embedding with split halves."""

from __future__ import annotations

import torch

from midspan_kernels.choice import prefers_triton
from midspan_kernels.norm import rms_norm


def rotary_frequencies(head_dim: int, theta: float, rotated: float) -> torch.Tensor:
    """Returns the head_dim // 2 inverse frequencies, fp32.

    Only the first `rotated` share of the pairs turns, the others have frequency 0. The exponent's denominator is the
    full head_dim ("proportional" RoPE: config keys `rope_theta`, `partial_rotary_factor`).
    """
    n_pairs = head_dim // 2
    n_rotated = int(rotated * head_dim // 2)
    exponent = torch.arange(n_rotated, dtype=torch.float32) * 2 / head_dim
    return torch.cat([theta**-exponent, torch.zeros(n_pairs - n_rotated)])


def rotary_angles(positions: torch.Tensor, frequencies: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """Returns cos and sin, each [..., L, 1, D], for integer positions [..., L]; angles are fp32, then cast."""
    angles = positions[..., None].float() * frequencies
    angles = torch.cat([angles, angles], dim=-1).unsqueeze(-2)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turns the pairs (i, i + D/2) of `x` [..., L, N, D] by the angles of its positions."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


def normed_rotate(
    x: torch.Tensor, weight: torch.Tensor, eps: float, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor:
    """Normalises the heads of `x` [B, L, N, D], then turns them; angles [B or 1, L, 1, D] as `rotary_angles` gives."""
    if prefers_triton(x):
        # Only there is Triton needed, and it takes time to import.
        from midspan_kernels.fused_rotary import fused_rotary

        return fused_rotary(x, weight, eps, cos, sin)
    return rotate(rms_norm(x, weight, eps), cos, sin)
