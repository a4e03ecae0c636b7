"""The kernels of experts in Triton's interpreter against their references; `test_kernels.py` runs this file."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from midspan_kernels.choice import VARIABLE
from midspan_kernels.expert_blocks import BLOCK_ROWS, expert_blocks
from midspan_kernels.experts import routed_experts
from midspan_kernels.packed import Packed, quantise
from midspan_kernels.top_experts import top_experts
from poisoned_memory import Memory, random


def weights(layout: str, *shape: int, seed: int) -> torch.Tensor | Packed:
    generator = torch.Generator().manual_seed(seed)
    if layout == "plain":
        return torch.randn(*shape, generator=generator) / shape[-1] ** 0.5
    if layout == "NVFP4":
        *outer, n_inputs = shape
        codes = torch.randint(256, (*outer, n_inputs // 2), dtype=torch.uint8, generator=generator)
        scales = torch.rand(*outer, n_inputs // 16, generator=generator) * 2
        scales[..., :1] = 2**-8  # below the smallest normal number
        of_rows = torch.rand(*outer, 1, generator=generator) / n_inputs**0.5
        return Packed("fp4", codes, scales.to(torch.float8_e4m3fn), row_scales=of_rows)
    if layout == "FP8":
        codes = (torch.randn(*shape, generator=generator) * 100).clamp(-440, 440).to(torch.float8_e4m3fn)
        return Packed("fp8", codes, torch.rand(*shape[:-1], 1, generator=generator) / (100 * shape[-1] ** 0.5))
    made = quantise(torch.randn(*shape, generator=generator) / shape[-1] ** 0.5, "int8" if layout == "int8" else "int4")
    scales = made.scales.float()
    return Packed(made.kind, made.codes, scales, scales * 0.5 if layout == "with offsets" else None)


@pytest.mark.parametrize(
    ("n_tokens", "top_k", "n_experts", "hidden", "width", "layout"),
    [
        (1, 1, 1, 32, 32, "int4"),
        (5, 2, 4, 96, 32, "int4"),
        (40, 2, 3, 64, 160, "int4"),  # an expert with more rows than a block
        (3, 4, 9, 128, 64, "with offsets"),
        (6, 2, 4, 80, 48, "NVFP4"),
        (5, 2, 4, 96, 64, "int8"),
        (5, 2, 4, 72, 40, "FP8"),
        (20, 2, 3, 72, 40, "plain"),
    ],
)
def test_experts_give_what_the_reference_gives(
    memory: Memory,
    compare: Callable[..., None],
    n_tokens: int,
    top_k: int,
    n_experts: int,
    hidden: int,
    width: int,
    layout: str,
) -> None:
    gate_up = weights(layout, n_experts, 2 * width, hidden, seed=1)
    down = weights(layout, n_experts, hidden, width, seed=2)
    x = memory.hold(random(n_tokens, hidden, seed=3))
    index = random(n_tokens, n_experts, seed=4).topk(top_k).indices
    compare(routed_experts, x, gate_up, down, memory.hold(index), memory.hold(random(n_tokens, top_k, seed=5)))


@pytest.mark.parametrize("wish", ["reference", "triton"])
@pytest.mark.parametrize(("n_pairs", "n_experts"), [(1, 1), (150, 3), (150, 40), (77, 128)])
def test_blocks_cover_every_pair_once_and_hold_one_expert(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, wish: str, n_pairs: int, n_experts: int
) -> None:
    monkeypatch.setenv(VARIABLE, wish)
    expert = torch.randint(n_experts, (n_pairs,), generator=torch.Generator().manual_seed(n_experts))
    order, blocks = expert_blocks(memory.hold(expert), n_experts)
    assert torch.equal(order, expert.argsort(stable=True))
    covered: list[int] = []
    for of, first, end in blocks.T.tolist():
        assert 0 <= end - first <= BLOCK_ROWS
        covered += range(first, end)
        assert (expert[order[first:end]] == of).all()
    assert covered == list(range(n_pairs))


@pytest.mark.parametrize(("n_tokens", "n_experts", "top_k"), [(1, 2, 1), (7, 128, 8), (5, 9, 3)])
def test_tokens_go_to_the_experts_of_the_reference(
    memory: Memory, compare: Callable[..., None], n_tokens: int, n_experts: int, top_k: int
) -> None:
    logits, scale = memory.hold(random(n_tokens, n_experts, seed=1)), memory.hold(random(n_experts, seed=2))
    compare(lambda: top_experts(logits, top_k, scale)[0])
    compare(lambda: top_experts(logits, top_k, scale)[1])
