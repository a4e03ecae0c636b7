"""Random bits that depend on a seed and a place alone, so that any part of them can be made anywhere, in any order."""

from __future__ import annotations

import torch

_LOW = 0xFFFFFFFF
_FACTORS, _STEPS = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
"""Source: Philox4x32-10, Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"; as `triton.language.randint`."""


def random_bits(seed_R: torch.Tensor, n: int) -> torch.Tensor:
    """Returns numbers of 32 bits for the places 0..n-1 of each int64 seed, int64 [R, n]."""
    a_RN = torch.arange(n, device=seed_R.device).expand(len(seed_R), n)
    b_RN = c_RN = d_RN = torch.zeros_like(a_RN)
    low_R1, high_R1 = seed_R[:, None] & _LOW, (seed_R[:, None] >> 32) & _LOW
    for _ in range(_ROUNDS):
        (of_a_high, of_a_low), (of_c_high, of_c_low) = _product(a_RN, _FACTORS[0]), _product(c_RN, _FACTORS[1])
        a_RN, b_RN, c_RN, d_RN = of_c_high ^ b_RN ^ low_R1, of_c_low, of_a_high ^ d_RN ^ high_R1, of_a_low
        low_R1, high_R1 = (low_R1 + _STEPS[0]) & _LOW, (high_R1 + _STEPS[1]) & _LOW
    return a_RN


def _product(x: torch.Tensor, factor: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the upper and the lower 32 bits of a product of numbers of 32 bits each."""
    return (x * (factor >> 16) + (x * (factor & 0xFFFF) >> 16)) >> 16, (x * factor) & _LOW
