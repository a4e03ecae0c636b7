"""The encoder's passes have few lengths where every length costs memory, and give what they would give anyway."""

from __future__ import annotations

import copy

import msgspec
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from midspan_engine.encoding import encode, rounded
from midspan_engine.kv import KVCache
from midspan_engine.models.diffusion_gemma import DiffusionGemma
from midspan_engine.passes import WantedPass
from midspan_engine.prefix_cache import PrefixCache
from midspan_engine.rows import together
from tiny_engine import BLANKS, fill, tiny_engine, tiny_model

N_LAYERS = 3
LENGTHS = {*range(1, 9), *(eighths << octave for octave in range(1, 7) for eighths in range(5, 9))}


class Products(TorchDispatchMode):
    """Notes how many rows the products with the model's matrices have."""

    def __init__(self) -> None:
        super().__init__()
        self.n_rows: set[int] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if func in (torch.ops.aten.mm.default, torch.ops.aten.linear.default):
            self.n_rows.add(args[0].numel() // args[0].shape[-1])
        return func(*args, **(kwargs or {}))


@pytest.fixture(scope="module")
def in_bf16() -> DiffusionGemma:
    return copy.deepcopy(tiny_model(n_experts=1)).to(torch.bfloat16)


def test_less_than_a_fifth_of_a_length_is_filled_up_and_there_are_few() -> None:
    assert all(n <= rounded(n) < n / 0.8 for n in range(1, 513))
    assert {rounded(n) for n in range(1, 513)} == LENGTHS
    assert len(LENGTHS) == 32


@pytest.mark.parametrize("n_tokens", [1, 9, 33, 100])
def test_what_fills_up_a_length_is_seen_by_nobody(in_bf16: DiffusionGemma, n_tokens: int) -> None:
    ids = [6 + number % 90 for number in range(n_tokens)]
    cache, plain = KVCache(N_LAYERS), KVCache(N_LAYERS)
    with torch.inference_mode():
        hidden_1LH = encode(in_bf16, ids, cache)
        torch.testing.assert_close(hidden_1LH, in_bf16.encode(torch.tensor([ids]), plain), atol=0.06, rtol=0.06)
    assert cache.length == plain.length == n_tokens
    for layer in range(N_LAYERS):
        pairs = zip(cache.window(layer, n_tokens, None) or (), plain.window(layer, n_tokens, None) or (), strict=True)
        for held, expected in pairs:
            torch.testing.assert_close(held, expected, atol=0.06, rtol=0.06)


def test_in_fp32_every_pass_is_as_long_as_what_is_new() -> None:
    with Products() as products, torch.inference_mode():
        encode(tiny_model(n_experts=1), list(range(6, 39)), KVCache(N_LAYERS))
    assert max(products.n_rows) == 33


def test_documents_of_all_lengths_bring_few_shapes_into_being(in_bf16: DiffusionGemma) -> None:
    with Products() as products:
        for n_tokens in range(1, 300, 3):
            PrefixCache(in_bf16).encode("a.py", [6 + number % 90 for number in range(n_tokens)])
    assert products.n_rows <= LENGTHS


def test_typing_on_brings_few_shapes_into_being(in_bf16: DiffusionGemma) -> None:
    infill = msgspec.structs.replace(BLANKS, causal_weight=0.5, sure_confidence=0.9, quote_tokens=8, head_tokens=12)
    engine = tiny_engine(infill, model=in_bf16, max_denoising_steps=1)
    document = "total = price * quantity + shipping\n" * 8
    with Products() as products:
        for n_typed in range(40):
            fill(engine, document[: 80 + 3 * n_typed], document[: n_typed // 2] + "\n", language="python", max_tokens=4)
    of_the_canvas = {4, engine.model.config.canvas_length}
    assert products.n_rows <= LENGTHS | of_the_canvas


def test_gaps_that_lie_side_by_side_bring_few_shapes_into_being(in_bf16: DiffusionGemma) -> None:
    config = in_bf16.config
    canvas_BC = torch.full((1, config.canvas_length), 7)
    soft_BCH = torch.zeros(1, config.canvas_length, config.hidden_size, dtype=torch.bfloat16)
    gap = range(2, 12)
    with Products() as products, torch.inference_mode():
        for start in range(2, 20):
            other = range(start, start + len(gap))
            wanted = [WantedPass(canvas_BC, KVCache(N_LAYERS), soft_BCH, list(slots)) for slots in (gap, other)]
            for made, alone in zip(together(in_bf16, wanted), (each.make(in_bf16) for each in wanted), strict=True):
                torch.testing.assert_close(made.values(), alone.values(), atol=0.3, rtol=0.06)
    of_both = {2 * length for length in LENGTHS}
    assert products.n_rows <= of_both | {len(gap), config.canvas_length}
