"""Experts in two Triton kernels, tuned for few rows an expert, whether their weights are packed or plain.

At 64 slots with 8 of 128 experts an expert gets four rows: the time is that of streaming the weights, so every matrix
is read once, unpacked in registers, and multiplied with up to 16 rows at a time. The first kernel gathers the rows of
an expert, multiplies with gate and up and activates; the second multiplies with down and the row's weight. Shapes
depend on T and K alone, never on the routing, and nothing waits for the device, so that a graph can hold it all.

`routed_experts` is the reference. It rounds between the products; here they are fp32 up to the activation. Suffixes: T
tokens, K experts of a token, P = T * K pairs of both, H hidden, I width.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from midspan_kernels.expert_blocks import BLOCK_ROWS, expert_blocks
from midspan_kernels.packed import Packed

GATE_COLUMNS, DOWN_COLUMNS, BLOCK_INPUTS = 32, 64, 64
"""Of a program and its step. Chosen: the first kernel unpacks two matrices, and with 64 columns of each it spills."""


def packed_experts(
    x_TH: torch.Tensor,
    gate_up: torch.Tensor | Packed,
    down: torch.Tensor | Packed,
    index_TK: torch.Tensor,
    weight_TK: torch.Tensor,
) -> torch.Tensor:
    """Returns what `routed_experts` does, for weights [E, 2I, H] and [E, H, I]."""
    (n_tokens, n_hidden), n_experts, n_pairs = x_TH.shape, gate_up.shape[0], index_TK.numel()
    width = down.shape[-1]
    order, blocks = expert_blocks(index_TK.flatten(), n_experts)
    hidden_PI = torch.empty(n_pairs, width, dtype=x_TH.dtype, device=x_TH.device)
    out_PH = torch.empty(n_pairs, n_hidden, dtype=torch.float32, device=x_TH.device)
    tokens = order // index_TK.shape[1]
    _gate_up_kernel[(blocks.shape[1], triton.cdiv(width, GATE_COLUMNS))](
        x_TH.contiguous(), *_tensors(gate_up), hidden_PI, tokens, blocks, blocks.shape[1], n_hidden, width,
        **_constants(gate_up, GATE_COLUMNS),
    )  # fmt: skip
    _down_kernel[(blocks.shape[1], triton.cdiv(n_hidden, DOWN_COLUMNS))](
        hidden_PI, *_tensors(down), out_PH, order, weight_TK.float().contiguous(), blocks, blocks.shape[1], width,
        n_hidden, **_constants(down, DOWN_COLUMNS),
    )  # fmt: skip
    return out_PH.view(n_tokens, -1, n_hidden).sum(1).to(x_TH.dtype)


def _tensors(weights: torch.Tensor | Packed) -> tuple[torch.Tensor, ...]:
    """Returns codes, scales, offsets and scales of rows; others stand in for what is not there."""
    if isinstance(weights, torch.Tensor):
        return (weights.contiguous(),) * 4
    codes, scales = (
        tensor.view(torch.uint8) if tensor.dtype == torch.float8_e4m3fn else tensor
        for tensor in (weights.codes, weights.scales)
    )
    others = (weights.offsets, weights.row_scales)
    return codes, scales, *(scales if other is None else other for other in others)


def _constants(weights: torch.Tensor | Packed, n_columns: int) -> dict[str, int | bool | str]:
    blocks: dict[str, int | bool | str] = {"BLOCK_M": BLOCK_ROWS, "BLOCK_N": n_columns, "BLOCK_K": BLOCK_INPUTS}
    if isinstance(weights, torch.Tensor):
        nothing = dict.fromkeys(("IS_FP8_SCALE", "HAS_OFFSETS", "HAS_ROW_SCALES"), False)
        return {**blocks, "KIND": "plain", "GROUP": 1, **nothing}
    return {
        **blocks,
        "KIND": weights.kind,
        "GROUP": weights.shape[-1] // weights.scales.shape[-1],
        "IS_FP8_SCALE": weights.scales.dtype == torch.float8_e4m3fn,
        "HAS_OFFSETS": weights.offsets is not None,
        "HAS_ROW_SCALES": weights.row_scales is not None,
    }


@triton.jit
def _e4m3(code):
    """Returns what codes of 8 bits stand for as floats, fp32: older GPUs cannot convert them.

    E4M3's bits where fp32 has its own, times what the exponents' biases differ by.
    """
    code = code.to(tl.int32)
    size = ((code & 127) << 20).to(tl.float32, bitcast=True) * 1.329227995784916e36
    return tl.where(code >= 128, -size, size)


@triton.jit
def _values(code, KIND: tl.constexpr):
    """Returns what codes stand for, fp32."""
    if KIND == "fp4":
        exponent, mantissa = (code & 7) >> 1, code & 1
        quarters = tl.where(exponent == 0, 2 * mantissa, (2 + mantissa) << exponent).to(tl.float32)
        value = tl.where(code >= 8, -0.25, 0.25) * quarters
    elif KIND == "int4":
        value = code.to(tl.float32) - 8
    elif KIND == "fp8":
        value = _e4m3(code)
    else:
        value = code.to(tl.float32)
    return value


@triton.jit
def _scaled(
    value, scales, offsets, at, mask, IS_FP8_SCALE: tl.constexpr, HAS_OFFSETS: tl.constexpr
):  # fmt: skip
    """Returns fp32 values times their groups' scales, plus offsets."""
    scale = tl.load(scales + at, mask=mask, other=0)
    scale = _e4m3(scale) if IS_FP8_SCALE else scale.to(tl.float32)
    value *= scale
    if HAS_OFFSETS:
        value += tl.load(offsets + at, mask=mask, other=0).to(tl.float32)
    return value


@triton.jit
def _inputs(x, row_M, is_row_M, start, n_inputs, KIND: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr):
    """Returns inputs [M, K] of rows from `start` on; where a byte holds two codes, even and odd ones, [M, K / 2]."""
    input_K = start + tl.arange(0, BLOCK_K)
    mask = is_row_M[:, None] & (input_K < n_inputs)[None, :]
    rows = tl.load(x + row_M[:, None] * n_inputs + input_K[None, :], mask=mask, other=0)
    if KIND == "int4" or KIND == "fp4":
        even, odd = tl.split(tl.reshape(rows, (BLOCK_M, BLOCK_K // 2, 2)))
    else:
        even, odd = rows, rows
    return even, odd


@triton.jit
def _added(
    total, even, odd, codes, scales, offsets, row_N, is_row_N, start, n_inputs,
    KIND: tl.constexpr, GROUP: tl.constexpr, IS_FP8_SCALE: tl.constexpr, HAS_OFFSETS: tl.constexpr,
    BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Returns [M, N] with the products of inputs from `start` on and rows of a matrix added."""
    type = even.dtype
    if KIND == "int4" or KIND == "fp4":
        byte_J = start // 2 + tl.arange(0, BLOCK_K // 2)
        mask = (byte_J < n_inputs // 2)[:, None] & is_row_N[None, :]
        code = tl.load(codes + row_N[None, :] * (n_inputs // 2) + byte_J[:, None], mask=mask, other=0).to(tl.int32)
        at = row_N[None, :] * (n_inputs // GROUP) + (byte_J * 2 // GROUP)[:, None]
        w_even = _scaled(_values(code & 15, KIND), scales, offsets, at, mask, IS_FP8_SCALE, HAS_OFFSETS)
        w_odd = _scaled(_values(code >> 4, KIND), scales, offsets, at, mask, IS_FP8_SCALE, HAS_OFFSETS)
        total = tl.dot(even, w_even.to(type), total, input_precision="ieee")
        total = tl.dot(odd, w_odd.to(type), total, input_precision="ieee")
    else:
        input_K = start + tl.arange(0, BLOCK_K)
        mask = (input_K < n_inputs)[:, None] & is_row_N[None, :]
        code = tl.load(codes + row_N[None, :] * n_inputs + input_K[:, None], mask=mask, other=0)
        if KIND != "plain":
            at = row_N[None, :] * (n_inputs // GROUP) + (input_K // GROUP)[:, None]
            code = _scaled(_values(code, KIND), scales, offsets, at, mask, IS_FP8_SCALE, HAS_OFFSETS)
        total = tl.dot(even, code.to(type), total, input_precision="ieee")
    return total


@triton.jit
def _gate_up_kernel(
    x, codes, scales, offsets, row_scales, hidden, tokens, blocks, n_blocks, n_inputs, width,
    KIND: tl.constexpr, GROUP: tl.constexpr, IS_FP8_SCALE: tl.constexpr, HAS_OFFSETS: tl.constexpr,
    HAS_ROW_SCALES: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0)
    first, end = tl.load(blocks + n_blocks + block), tl.load(blocks + 2 * n_blocks + block)
    if first < end:
        place_M = first + tl.arange(0, BLOCK_M)
        is_row_M = place_M < end
        token_M = tl.load(tokens + place_M, mask=is_row_M, other=0)
        column_N = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
        is_column_N = column_N < width
        gate_N = tl.load(blocks + block) * 2 * width + column_N  # int64: all experts' codes exceed 2^31
        gate = tl.full((BLOCK_M, BLOCK_N), 0, tl.float32)
        up = tl.full((BLOCK_M, BLOCK_N), 0, tl.float32)
        for start in range(0, n_inputs, BLOCK_K):
            even, odd = _inputs(x, token_M, is_row_M, start, n_inputs, KIND, BLOCK_M, BLOCK_K)
            gate = _added(
                gate, even, odd, codes, scales, offsets, gate_N, is_column_N, start, n_inputs,
                KIND, GROUP, IS_FP8_SCALE, HAS_OFFSETS, BLOCK_K,
            )  # fmt: skip
            up = _added(
                up, even, odd, codes, scales, offsets, gate_N + width, is_column_N, start, n_inputs,
                KIND, GROUP, IS_FP8_SCALE, HAS_OFFSETS, BLOCK_K,
            )  # fmt: skip
        if HAS_ROW_SCALES:
            gate *= tl.load(row_scales + gate_N, mask=is_column_N, other=0)[None, :]
            up *= tl.load(row_scales + gate_N + width, mask=is_column_N, other=0)[None, :]
        # gelu_tanh: 1/2 (1 + tanh(z)) is the logistic function of 2z
        z = 0.7978845608028654 * (gate + 0.044715 * gate * gate * gate)
        activated = gate / (1 + tl.exp(-2 * z)) * up
        mask = is_row_M[:, None] & is_column_N[None, :]
        tl.store(hidden + place_M[:, None] * width + column_N[None, :], activated, mask=mask)


@triton.jit
def _down_kernel(
    hidden, codes, scales, offsets, row_scales, out, order, weights, blocks, n_blocks, n_inputs, n_outputs,
    KIND: tl.constexpr, GROUP: tl.constexpr, IS_FP8_SCALE: tl.constexpr, HAS_OFFSETS: tl.constexpr,
    HAS_ROW_SCALES: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0)
    first, end = tl.load(blocks + n_blocks + block), tl.load(blocks + 2 * n_blocks + block)
    if first < end:
        place_M = first + tl.arange(0, BLOCK_M)
        is_row_M = place_M < end
        column_N = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
        is_column_N = column_N < n_outputs
        row_N = tl.load(blocks + block) * n_outputs + column_N
        total = tl.full((BLOCK_M, BLOCK_N), 0, tl.float32)
        for start in range(0, n_inputs, BLOCK_K):
            even, odd = _inputs(hidden, place_M, is_row_M, start, n_inputs, KIND, BLOCK_M, BLOCK_K)
            total = _added(
                total, even, odd, codes, scales, offsets, row_N, is_column_N, start, n_inputs,
                KIND, GROUP, IS_FP8_SCALE, HAS_OFFSETS, BLOCK_K,
            )  # fmt: skip
        if HAS_ROW_SCALES:
            total *= tl.load(row_scales + row_N, mask=is_column_N, other=0)[None, :]
        pair_M = tl.load(order + place_M, mask=is_row_M, other=0)
        total *= tl.load(weights + pair_M, mask=is_row_M, other=0)[:, None]
        mask = is_row_M[:, None] & is_column_N[None, :]
        tl.store(out + pair_M[:, None] * n_outputs + column_N[None, :], total, mask=mask)
