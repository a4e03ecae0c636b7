"""The folded layers of a dense model compute what its plain ones do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

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


class Operations(TorchDispatchMode):
    """Counts what is computed or copied; a view of a tensor costs next to nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.n = 0

    def __torch_dispatch__(
        self, function: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = {each.untyped_storage().data_ptr() for each in args if isinstance(each, torch.Tensor)}
        out = function(*args, **(kwargs or {}))
        made = out if isinstance(out, torch.Tensor) else next(iter(out), None)
        is_view = isinstance(made, torch.Tensor) and made.untyped_storage().data_ptr() in given
        self.n += not is_view or function is torch.ops.aten.copy_.default
        return out


@pytest.mark.parametrize(("work", "at_most"), [("a canvas", 124), ("a token", 101), ("eight tokens", 107)])
@torch.inference_mode()
def test_a_pass_of_a_small_model_takes_no_more_operations_than_it_did(work: str, at_most: int) -> None:
    """On a processor their number is most of what a small model's pass takes: what serves GPUs must add none."""
    model = tiny_model.__wrapped__(n_experts=1)
    model.fuse()
    cache, ids = KVCache(model.config.n_layers), torch.arange(10, 60)[None]
    model.encode(ids, cache)
    with Operations() as operations:
        if work == "a canvas":
            model.decode(ids, cache, model.embed(ids), torch.tensor([3, 9]))
        else:
            model.encode(ids[:, : 1 if work == "a token" else 8], cache)
    assert operations.n <= at_most
