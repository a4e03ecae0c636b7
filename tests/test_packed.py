"""Packed weights: what they are worth, and that computing with them is computing with what they are worth."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from midspan_kernels.choice import prefers_triton
from midspan_kernels.experts import routed_experts
from midspan_kernels.packed import (
    GROUP,
    IntegerKind,
    Packed,
    dequantise,
    joined,
    pack_nibbles,
    quantise,
    unpack_nibbles,
)
from midspan_kernels.quantised_linear import linear


def weights(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("kind", "n_steps"), [("int4", 8), ("int8", 127)])
@pytest.mark.parametrize("shape", [(3, 32), (5, 96), (2, 7, 64)])
def test_a_weight_is_off_by_at_most_one_step_of_its_group(
    kind: IntegerKind, n_steps: int, shape: tuple[int, ...]
) -> None:
    plain = weights(*shape)
    worth = dequantise(quantise(plain, kind), torch.float32)
    groups = plain.unflatten(-1, (-1, GROUP))
    step = groups.abs().amax(-1, keepdim=True) / n_steps
    error = (worth - plain).unflatten(-1, (-1, GROUP)).abs()
    # half a step; of 4 bits the outermost code is there on one side only, so near the other end a whole one; the rest
    # is the rounding of the scale
    assert (error <= step * (1.05 if kind == "int4" else 0.8)).all()
    assert error.mean() <= step.mean() * 0.3


@pytest.mark.parametrize("kind", ["int4", "int8"])
def test_what_is_packed_is_packed_again_to_the_same(kind: IntegerKind) -> None:
    once = quantise(weights(4, 64), kind)
    again = quantise(dequantise(once, torch.float32), kind)
    assert torch.equal(dequantise(once, torch.float32), dequantise(again, torch.float32))


@pytest.mark.parametrize("kind", ["int4", "int8"])
def test_zeros_stay_zeros(kind: IntegerKind) -> None:
    assert not dequantise(quantise(torch.zeros(2, 64), kind), torch.float32).any()


def test_four_bits_take_four_and_a_half() -> None:
    packed = quantise(weights(8, 128), "int4")
    assert packed.n_bytes == 8 * 128 * 4.5 / 8
    assert packed.shape == (8, 128)


def test_nibbles_come_back_in_order() -> None:
    codes = torch.randint(16, (3, 10), dtype=torch.uint8)
    assert torch.equal(unpack_nibbles(pack_nibbles(codes)), codes)


def test_every_four_bit_float_has_its_value() -> None:
    codes = pack_nibbles(torch.arange(16, dtype=torch.uint8)[None])
    packed = Packed("fp4", codes, torch.full((1, 1), 2.0), row_scales=torch.full((1, 1), 0.5))
    positive = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    assert dequantise(packed, torch.float32).tolist() == [positive + [-value for value in positive]]


def test_an_offset_moves_its_group_alone() -> None:
    packed = quantise(weights(2, 64), "int8")
    offsets = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    moved = Packed(packed.kind, packed.codes, packed.scales, offsets)
    difference = dequantise(moved, torch.float32) - dequantise(packed, torch.float32)
    torch.testing.assert_close(difference, offsets.repeat_interleave(32, -1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_linear_map_is_that_of_the_unpacked_matrix(dtype: torch.dtype) -> None:
    packed, x = quantise(weights(5, 64), "int4"), weights(3, 64, seed=1).to(dtype)
    assert torch.equal(linear(x, packed), F.linear(x, dequantise(packed, dtype)))


@pytest.mark.parametrize("n_experts", [1, 4])
def test_packed_experts_give_what_the_unpacked_ones_give(n_experts: int) -> None:
    gate_up, down = quantise(weights(n_experts, 128, 32), "int4"), quantise(weights(n_experts, 32, 64), "int8")
    x, index = weights(6, 32, seed=1), torch.arange(12).view(6, 2) % n_experts
    weight = weights(6, 2, seed=2)
    unpacked = [dequantise(packed, x.dtype) for packed in (gate_up, down)]
    assert torch.equal(routed_experts(x, gate_up, down, index, weight), routed_experts(x, *unpacked, index, weight))


@torch.inference_mode()
def test_a_processor_runs_the_reference_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(1)
    monkeypatch.delenv("MIDSPAN_KERNELS", raising=False)
    assert not prefers_triton(x)
    monkeypatch.setenv("MIDSPAN_KERNELS", "triton")
    assert prefers_triton(x)
    with torch.inference_mode(False):
        assert not prefers_triton(x)  # there are gradients
    monkeypatch.setenv("MIDSPAN_KERNELS", "fast")
    with pytest.raises(ValueError, match="use reference or triton"):
        prefers_triton(x)


def test_parts_of_one_kind_are_joined_and_others_refused() -> None:
    one, other = quantise(weights(2, 64), "int4"), quantise(weights(3, 64, seed=1), "int4")
    both = dequantise(joined([one, other], -2), torch.float32)
    assert torch.equal(both, torch.cat([dequantise(part, torch.float32) for part in (one, other)]))
    with pytest.raises(ValueError, match="different ways"):
        joined([one, quantise(weights(2, 64), "int8")], -2)
