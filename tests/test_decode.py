"""A decoder pass over several rows gives each what a pass of its own would."""

from __future__ import annotations

import pytest
import torch

from midspan_engine.kv import KVCache
from midspan_engine.models.diffusion_gemma import DiffusionGemma
from tiny_engine import tiny_model


def drawn(*shape: int, seed: int) -> torch.Tensor:
    return torch.randint(10, 4000, shape, generator=torch.Generator().manual_seed(seed))


def encoded(model: DiffusionGemma, n_tokens: int) -> KVCache:
    cache = KVCache(model.config.n_layers)
    if n_tokens:
        model.encode(drawn(1, n_tokens, seed=n_tokens), cache)
    return cache


@pytest.mark.parametrize("n_experts", [1, 2])
@pytest.mark.parametrize("lengths", [(5, 150), (0, 63, 64, 200)])
@torch.inference_mode()
def test_rows_with_caches_of_their_own_get_what_each_gets_alone(n_experts: int, lengths: tuple[int, ...]) -> None:
    model = tiny_model.__wrapped__(n_experts=n_experts)
    model.fuse()
    caches = [encoded(model, n_tokens) for n_tokens in lengths]
    canvas = drawn(len(caches), 24, seed=1)
    soft, wanted = model.embed(drawn(len(caches), 24, seed=2)), torch.tensor([3, 9, 10])
    for given in ((None, None), (soft, wanted)):
        together = model.decode(canvas, caches, *given)
        for row, cache in enumerate(caches):
            own_soft = None if given[0] is None else soft[row, None]
            alone = model.decode(canvas[row, None], cache, own_soft, given[1])
            torch.testing.assert_close(together[row, None], alone, atol=1e-4, rtol=1e-4)


@torch.inference_mode()
def test_a_cache_that_is_given_for_each_row_is_as_good_as_the_one_of_all() -> None:
    model = tiny_model()
    cache, canvas = encoded(model, 70), drawn(3, 24, seed=1)
    torch.testing.assert_close(model.decode(canvas, [cache] * 3), model.decode(canvas, cache), atol=1e-5, rtol=1e-5)
