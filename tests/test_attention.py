"""Attention: the fast paths equal torch's plain one."""

from __future__ import annotations

import pytest
import torch

from midspan_kernels.attention import attention, folded_attention
from midspan_kernels.shared_attention import shared_context_attention


def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Attention in fp32, every key and value copied to its query heads."""
    per_group = q.shape[2] // k.shape[2]
    keys, values = (t.float().repeat_interleave(per_group, 2).transpose(1, 2) for t in (k, v))
    scores = q.float().transpose(1, 2) @ keys.transpose(-1, -2)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return (scores.softmax(-1) @ values).transpose(1, 2)


@pytest.mark.parametrize("n_queries", [1, 3, 4, 9])
@pytest.mark.parametrize("n_keys", [21, 150])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_any_number_of_queries_gives_plain_attention(n_queries: int, n_keys: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(n_queries)
    q = torch.randn(2, n_queries, 4, 16, generator=generator).to(dtype)
    k, v = (torch.randn(2, n_keys, 2, 16, generator=generator).to(dtype) for _ in range(2))
    mask = torch.arange(n_keys) <= torch.arange(n_keys - n_queries, n_keys)[:, None]
    for shown in (None, mask):
        got = attention(q, k, v, shown, is_causal=False)
        assert got.dtype == dtype
        tolerance = 1e-5 if dtype == torch.float32 else 0.03
        assert torch.allclose(got.float(), plain(q, k, v, shown), atol=tolerance)


@pytest.mark.parametrize("per_row", [False, True], ids=["a mask for each query", "a mask for each row"])
def test_queries_of_heads_that_share_keys_can_be_those_of_one_head(per_row: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(3, 5, 8, 16, generator=generator)
    k, v = (torch.randn(3, 21, 2, 16, generator=generator) for _ in range(2))
    mask = (
        torch.rand(3, 1, 1, 21, generator=generator) < 0.5 if per_row else torch.rand(5, 21, generator=generator) < 0.5
    )
    mask[..., 0] = True
    assert torch.allclose(folded_attention(q, k, v, mask), plain(q, k, v, mask), atol=1e-5)


@pytest.mark.parametrize("n_tokens", [1, 63, 64, 150])
def test_whole_rows_with_gradients_get_plain_attention_and_its_gradients(n_tokens: int) -> None:
    generator = torch.Generator().manual_seed(n_tokens)
    shapes = (4, 2, 2)
    given = [torch.randn(3, n_tokens, n, 8, generator=generator).requires_grad_() for n in shapes]
    seen = torch.ones(n_tokens, n_tokens, dtype=torch.bool).tril()
    weights = torch.randn(3, n_tokens, 4, 8, generator=generator)
    with torch.enable_grad():
        got, expected = attention(*given, None, is_causal=True), plain(*given, seen)
        slopes = [torch.autograd.grad((out * weights).sum(), given) for out in (got, expected)]
    assert torch.allclose(got, expected, atol=1e-5)
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(*slopes, strict=True))


@pytest.mark.parametrize("is_causal", [False, True])
def test_rows_behind_a_shared_context_see_it_as_if_it_were_copied_to_them(is_causal: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    n_contexts, of_each, n_tokens, n_slots = 2, 3, 20, 5
    n_rows = n_contexts * of_each
    q = torch.randn(n_rows, n_slots, 4, 8, generator=generator)
    context = tuple(torch.randn(n_contexts, n_tokens, 2, 8, generator=generator) for _ in range(2))
    own = tuple(torch.randn(n_rows, n_slots, 2, 8, generator=generator) for _ in range(2))
    n_context = torch.tensor([0, 3, 20, 7, 19, 1])
    keys, values = (
        torch.cat([of_all.repeat_interleave(of_each, 0), mine], 1) for of_all, mine in zip(context, own, strict=True)
    )
    far = (torch.arange(n_tokens) < n_context[:, None])[:, None].expand(-1, n_slots, -1)
    near = torch.ones(n_slots, n_slots, dtype=torch.bool)
    near = (near.tril() if is_causal else near).expand(n_rows, -1, -1)
    expected = plain(q, keys, values, torch.cat([far, near], -1)[:, None])
    got = shared_context_attention(q, context, own, n_context, is_causal=is_causal)
    assert torch.allclose(got, expected, atol=1e-5)
