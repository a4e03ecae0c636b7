"""GGUF's block formats as packed weights.

A row is a sequence of blocks of 32 or 256 weights. Scales and offsets become fp16, one for 16 or 32 weights: a weight
is off by at most 2^-9 of the largest of its group from what the format defines; those without a K are exact.
Formats of 5 and 6 bits take 8 here. Source: the block structures of ggml-common.h; the tests compare with the gguf
package. Shape suffixes: N blocks, S groups of a block.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from midspan_kernels.packed import Kind, Packed, pack_nibbles

_Block = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]
"""Codes [N, weights of a block], scales [N, S] and offsets [N, S]."""


def packed_rows(kind: str, data: torch.Tensor, n_inputs: int) -> Packed:
    """Returns rows [R, I] from their bytes, uint8; `kind`, one of BLOCKS, is the format's name in GGUF."""
    n_weights, n_bytes, of_codes, read = BLOCKS[kind]
    codes, scales, offsets = read(data.view(-1, n_bytes))
    n_rows = data.numel() // n_bytes * n_weights // n_inputs
    rows = codes.reshape(n_rows, n_inputs)
    return Packed(
        of_codes,
        pack_nibbles(rows) if of_codes == "int4" else rows.to(torch.int8),
        scales.reshape(n_rows, -1).half(),
        None if offsets is None else offsets.reshape(n_rows, -1).half(),
    )


def _q8_0(blocks: torch.Tensor) -> _Block:
    return blocks[:, 2:].view(torch.int8), _half(blocks, 0), None


def _q4_0(blocks: torch.Tensor) -> _Block:
    return _halves(blocks[:, 2:]), _half(blocks, 0), None


def _q5_0(blocks: torch.Tensor) -> _Block:
    return _five_bits(blocks[:, 2:6], blocks[:, 6:]).to(torch.int8) - 16, _half(blocks, 0), None


def _q5_1(blocks: torch.Tensor) -> _Block:
    return _five_bits(blocks[:, 4:8], blocks[:, 8:]), _half(blocks, 0), _half(blocks, 2)


def _q4_k(blocks: torch.Tensor) -> _Block:
    scales, minima = _scales_and_minima(blocks)
    codes = _halves(blocks[:, 16:].reshape(-1, 4, 32)).flatten(1)
    return codes, scales, 8 * scales - minima  # of 4 bits a code stands for itself less 8


def _q5_k(blocks: torch.Tensor) -> _Block:
    scales, minima = _scales_and_minima(blocks)
    fifth = (blocks[:, None, 16:48] >> torch.arange(8, dtype=torch.uint8)[:, None]) & 1
    codes = _halves(blocks[:, 48:].reshape(-1, 4, 32)).view(-1, 8, 32)
    return (codes | (fifth << 4)).flatten(1), scales, -minima


def _q6_k(blocks: torch.Tensor) -> _Block:
    low = blocks[:, :128].reshape(-1, 2, 1, 2, 32)
    low = torch.cat([low & 15, low >> 4], dim=2).reshape(-1, 2, 4, 32)
    shifts = torch.tensor([0, 2, 4, 6], dtype=torch.uint8)
    high = (blocks[:, 128:192].reshape(-1, 2, 1, 32) >> shifts[:, None]) & 3
    codes = (low | (high << 4)).to(torch.int8).flatten(1) - 32
    scales = blocks[:, 192:208].view(torch.int8).float() * _half(blocks, 208)
    return codes, scales, None


def _five_bits(fifths: torch.Tensor, packed: torch.Tensor) -> torch.Tensor:
    """Returns codes of 5 bits whose highest ones are stored apart."""
    fifth = (fifths[:, :, None] >> torch.arange(8, dtype=torch.uint8)) & 1
    return _halves(packed) | (fifth.flatten(1) << 4)


def _half(blocks: torch.Tensor, at: int) -> torch.Tensor:
    """Returns the fp16 number at a byte of each block, fp32 [N, 1]."""
    return blocks[:, at : at + 2].contiguous().view(torch.float16).float()


def _halves(packed: torch.Tensor) -> torch.Tensor:
    """Returns the low halves of all bytes, then the high ones, along the last dimension."""
    return torch.cat([packed & 15, packed >> 4], dim=-1)


def _scales_and_minima(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns a K block's 8 scales and 8 minima of 6 bits each, times those of the block, fp32 [N, 8]."""
    first, second, third = blocks[:, 4:16].reshape(-1, 3, 4).unbind(1)
    scales = torch.cat([first & 63, (third & 15) | ((first >> 6) << 4)], dim=1)
    minima = torch.cat([second & 63, (third >> 4) | ((second >> 6) << 4)], dim=1)
    return scales.float() * _half(blocks, 0), minima.float() * _half(blocks, 2)


BLOCKS: dict[str, tuple[int, int, Kind, Callable[[torch.Tensor], _Block]]] = {
    "Q8_0": (32, 34, "int8", _q8_0),
    "Q4_0": (32, 18, "int4", _q4_0),
    "Q5_0": (32, 22, "int8", _q5_0),
    "Q5_1": (32, 24, "int8", _q5_1),
    "Q4_K": (256, 144, "int4", _q4_k),
    "Q5_K": (256, 176, "int8", _q5_k),
    "Q6_K": (256, 210, "int8", _q6_k),
}
"""By GGUF's name: weights and bytes of a block, what its codes become, and how it is read. Files of the mixtures
Q4_K_M, Q5_K_M, Q6_K and Q8_0 consist of these and plain floats: rows that 256 does not divide are Q5_0, Q5_1 or Q8_0.
"""
