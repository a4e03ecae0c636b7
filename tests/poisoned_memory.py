"""Memory in which a kernel's mistakes show, and the comparison of what it gives with its reference.

Results are made of poison between guards, and inputs lie in poison: what a kernel leaves out, reads beside its input or
writes beside its result is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from midspan_kernels.choice import VARIABLE

GUARD = 1 << 14
POISON = -(1 << 30)


class Memory:
    """Tensors between guards of NaN."""

    def __init__(self) -> None:
        self._held: list[torch.Tensor] = []
        self._full = torch.full

    def empty(self, *size: Any, dtype: torch.dtype | None = None, **about: Any) -> torch.Tensor:
        shape = torch.Size(size[0] if len(size) == 1 and not isinstance(size[0], int) else size)
        dtype = dtype or torch.float32
        poison = torch.nan if dtype.is_floating_point else POISON
        held = self._full((shape.numel() + 2 * GUARD,), poison, dtype=dtype)
        self._held.append(held)
        return held[GUARD:-GUARD].view(shape)

    def empty_like(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.empty(tensor.shape, dtype=tensor.dtype)

    def hold(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns a copy between guards."""
        return self.empty_like(tensor).copy_(tensor)

    def check(self) -> None:
        for held in self._held:
            is_poison = held.isnan() if held.is_floating_point() else held == POISON
            assert is_poison[:GUARD].all(), "written in front of a tensor"
            assert is_poison[-GUARD:].all(), "written behind a tensor"


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Memory]:
    memory = Memory()
    monkeypatch.setattr(torch, "empty", memory.empty)
    monkeypatch.setattr(torch, "empty_like", memory.empty_like)
    with torch.inference_mode():
        yield memory
    memory.check()


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Compares what an operation gives with the reference and with Triton."""

    def check(operation: Callable[..., torch.Tensor], *inputs: Any, tolerance: float = 1e-5) -> None:
        monkeypatch.setenv(VARIABLE, "reference")
        expected = operation(*inputs)
        monkeypatch.setenv(VARIABLE, "triton")
        close(operation(*inputs), expected, tolerance)

    return check


def close(found: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-5) -> None:
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    error, size = (found.float() - expected.float()).norm(), expected.float().norm()
    assert error <= tolerance * size, f"relative error {error / size:.1e}"


def random(*shape: int, seed: int, scale: float = 1.0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale
