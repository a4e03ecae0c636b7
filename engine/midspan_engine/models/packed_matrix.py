"""The module that stands in a model where packed weights take the place of plain ones."""

from __future__ import annotations

import torch
from torch import nn

from midspan_kernels.packed import FIELDS, Packed
from midspan_kernels.quantised_linear import linear


class PackedMatrix(nn.Module):
    """A linear map without bias, or the stacked matrices of all experts, whose weights stay packed."""

    def __init__(self, packed: Packed) -> None:
        super().__init__()
        self._kind = packed.kind
        for name in FIELDS:
            self.register_buffer(name, getattr(packed, name))

    @property
    def packed(self) -> Packed:
        """The weights, wherever the module was moved to."""
        return Packed(self._kind, **{name: getattr(self, name) for name in FIELDS})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps [.., I] to [.., O]."""
        return linear(x, self.packed)
