"""Rows of logits as the output head leaves them, with the cap and the temperature that are applied as they are read."""

from __future__ import annotations

from typing import NamedTuple

import torch


class RowLogits(NamedTuple):
    """Logits [..., V] of any type that are still to be soft-capped and divided by a temperature, in fp32."""

    z: torch.Tensor
    """What the matrix product gave; -inf rules a token out."""
    cap: float | None = None
    """Which none exceeds; None where there is none, and where it has been applied."""
    temperature: float = 1.0

    def values(self) -> torch.Tensor:
        """Returns what they stand for, fp32. A token that is ruled out stays so: a cap alone would make -cap of it."""
        z = capped(self.z, self.cap)
        if self.cap is not None:
            z = z.masked_fill(self.z == -torch.inf, -torch.inf)
        return z if self.temperature == 1 else z / self.temperature


def capped(z: torch.Tensor, cap: float | None) -> torch.Tensor:
    """Returns soft-capped logits, fp32, of which none may be -inf yet; those of no cap may be the same memory."""
    z = z.float()
    return z if cap is None else torch.tanh(z / cap) * cap
