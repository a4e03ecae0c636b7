"""A linear map whose weights may be packed."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from midspan_kernels.packed import Packed, dequantise


def linear(x: torch.Tensor, weight: torch.Tensor | Packed) -> torch.Tensor:
    """Returns x [.., I] times the transpose of the weight [O, I]; packed weights are unpacked for this one product.

    The result is that of the dequantised matrix in the type of `x`, rounding included.
    """
    return F.linear(x, dequantise(weight, x.dtype) if isinstance(weight, Packed) else weight)
