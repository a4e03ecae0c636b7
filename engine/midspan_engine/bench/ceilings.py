"""What this machine reaches at best: bytes copied and a large matrix product, measured."""

from __future__ import annotations

import msgspec
import torch

from midspan_engine.bench.timing import medians_ms

_N_TIMES = 10
_COPIED = {"cuda": 2**32, "cpu": 2**26}
"""Bytes by device: several times the largest cache there is."""
_SIDE = {"cuda": 8192, "cpu": 1024}
"""Of the matrices."""


class Ceilings(msgspec.Struct, frozen=True, tag=True):
    """The best of a machine."""

    gb_per_s: float
    """Of a copy, bytes read and bytes written."""
    tflop_per_s: float
    """Of a matrix product in the type that the model is served in."""


@torch.inference_mode()
def measure_ceilings(device: torch.device, dtype: torch.dtype) -> Ceilings:
    """Copies a large buffer and multiplies two large matrices of random numbers."""
    source = torch.empty(_COPIED[device.type], dtype=torch.uint8, device=device).fill_(1)
    target = torch.empty_like(source)
    side = _SIDE[device.type]
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    times = medians_ms({"copy": lambda: target.copy_(source), "matmul": lambda: a @ b}, device, _N_TIMES)
    return Ceilings(2 * len(source) / times["copy"] / 1e6, 2 * side**3 / times["matmul"] / 1e9)
