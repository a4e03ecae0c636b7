"""The folded layers of a dense model compute what its plain ones do."""

from __future__ import annotations

import torch

from midspan_engine.kv import KVCache
from midspan_engine.models.diffusion_gemma import DiffusionGemma
from tiny_engine import tiny_model


def logits(model: DiffusionGemma, *, is_fused: bool) -> list[torch.Tensor]:
    """Logits of a prompt in three pieces, of a canvas behind it, and of some of its slots only."""
    if is_fused:
        model.fuse()
    generator = torch.Generator().manual_seed(1)
    cache = KVCache(model.config.n_layers)
    pieces = [torch.randint(10, 4000, (1, n), generator=generator) for n in (70, 1, 5)]
    canvas = torch.randint(10, 4000, (2, 24), generator=generator)
    hidden = [model.encode(piece, cache) for piece in pieces]
    hidden += [model.decode(canvas, cache), model.decode(canvas, cache, model.embed(canvas), torch.tensor([3, 9]))]
    return [model.logits(of_pass) for of_pass in hidden]


@torch.inference_mode()
def test_a_fused_model_gives_the_logits_of_the_plain_one() -> None:
    plain = logits(tiny_model(n_experts=1), is_fused=False)
    fused = logits(tiny_model.__wrapped__(n_experts=1), is_fused=True)
    for expected, got in zip(plain, fused, strict=True):
        assert torch.allclose(expected, got, atol=2e-4)


def test_a_model_with_a_choice_of_experts_stays_as_it_is() -> None:
    model = tiny_model.__wrapped__(n_experts=2)
    model.fuse()
    assert all(layer.fused is None for layer in model.layers)
