"""Rows of logits with the cap and the temperature that they still have to get, by the reference."""

from __future__ import annotations

import pytest
import torch

from midspan_kernels.row_logits import RowLogits
from midspan_kernels.soft_embedding import soft_embedding


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (2, 5, 33)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("temperature", [0.4, 1.0])
def test_logits_are_capped_then_divided(shape: tuple[int, ...], dtype: torch.dtype, temperature: float) -> None:
    z = (torch.randn(shape, generator=torch.Generator().manual_seed(len(shape))) * 20).to(dtype)
    values = RowLogits(z, cap=30.0, temperature=temperature).values()
    assert values.dtype == torch.float32
    torch.testing.assert_close(values.double(), 30 * torch.tanh(z.double() / 30) / temperature, rtol=1e-6, atol=1e-5)
    assert torch.equal(RowLogits(z, temperature=temperature).values(), z.float() / temperature)


def test_a_cap_bounds_huge_logits_and_lets_a_forbidden_token_stay_forbidden() -> None:
    values = RowLogits(torch.tensor([1e4, -1e4, -torch.inf]), cap=30.0, temperature=0.4).values()
    assert values.tolist() == [75.0, -75.0, -torch.inf]


def test_a_soft_embedding_takes_what_the_logits_stand_for_in_the_weights_type() -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(50, 6, generator=generator).bfloat16()
    logits = RowLogits(torch.randn(2, 3, 50, generator=generator).bfloat16() * 9, cap=5.0, temperature=0.4)
    plain = RowLogits((5 * torch.tanh(logits.z.float() / 5) / 0.4).bfloat16())
    assert torch.equal(soft_embedding(logits, weight), soft_embedding(plain, weight))
