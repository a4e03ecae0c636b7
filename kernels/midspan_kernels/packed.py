"""Weights of 4 or 8 bits: how they are held, what they are worth, and how plain weights become such.

Every format of a checkpoint that Midspan reads fits one shape: a code for each weight, a scale for each group of
weights along a row, and where a format has them an offset for each group and a scale for each row. `dequantise` is the
definition. Shape suffixes: O outputs, I inputs, G groups of a row; a dimension of experts may come in front.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

Kind = Literal["int4", "fp4", "int8", "fp8"]
"""What a code stands for: int4 the code - 8, fp4 a float of two bits of exponent and one of mantissa (E2M1 of the OCP
microscaling specification: 0, 0.5, 1, 1.5, 2, 3, 4, 6), others itself.
"""
IntegerKind = Literal["int4", "int8"]
"""The kinds that plain weights are packed into."""

FIELDS = ("codes", "scales", "offsets", "row_scales")
"""The tensors of a `Packed`, in order."""

GROUP = 32
"""Weights that share a scale when plain weights are packed: 4.5 bits each. 64 with an offset would take as much."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A matrix [.., O, I]: a weight is (value of its code * scale + offset of its group) * scale of its row."""

    kind: Kind
    codes: torch.Tensor
    """int8 or float8_e4m3fn [.., O, I]; of 4 bits uint8 [.., O, I / 2], the first of two weights in the low half."""
    scales: torch.Tensor
    """Any float type, [.., O, G]; G divides I."""
    offsets: torch.Tensor | None = None
    """[.., O, G]"""
    row_scales: torch.Tensor | None = None
    """[.., O, 1]"""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the matrix."""
        return (*self.codes.shape[:-1], self.codes.shape[-1] * (2 if self.kind in ("int4", "fp4") else 1))

    @property
    def n_bytes(self) -> int:
        """What it takes."""
        return sum(tensor.nbytes for tensor in self.tensors().values())

    def tensors(self) -> dict[str, torch.Tensor]:
        """Returns the fields that are there, by name."""
        named = ((name, getattr(self, name)) for name in FIELDS)
        return {name: tensor for name, tensor in named if tensor is not None}

    def map(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Packed:
        """Returns the same with every field changed."""
        return Packed(self.kind, **{name: change(tensor) for name, tensor in self.tensors().items()})

    def expert(self, index: int) -> Packed:
        """Returns one matrix of a stack of them."""
        return self.map(lambda tensor: tensor[index])


def joined(parts: Sequence[Packed], dim: int) -> Packed:
    """Returns parts behind each other along a dimension in front of the inputs. Raises ValueError when they differ."""
    kinds = {(part.kind, *part.tensors()) for part in parts}
    if len(kinds) != 1:
        raise ValueError("parts of one matrix are packed in different ways")
    fields = {name: [part.tensors()[name] for part in parts] for name in parts[0].tensors()}
    return Packed(parts[0].kind, **{name: torch.cat(tensors, dim) for name, tensors in fields.items()})


def dequantise(packed: Packed, dtype: torch.dtype) -> torch.Tensor:
    """Returns the weights [.., O, I], computed in fp32."""
    n_groups = packed.scales.shape[-1]
    values = _values(packed)
    weights = values.reshape(*values.shape[:-1], n_groups, -1) * packed.scales.float()[..., None]
    if packed.offsets is not None:
        weights = weights + packed.offsets.float()[..., None]
    weights = weights.flatten(-2)
    if packed.row_scales is not None:
        weights = weights * packed.row_scales.float()
    return weights.to(dtype)


def quantise(weights: torch.Tensor, kind: IntegerKind) -> Packed:
    """Packs [.., O, I], I a multiple of GROUP, with one bf16 scale a group.

    The largest weight of a group takes the outermost code (-8 of 4 bits): the scale has its sign, no code is wasted.
    """
    # a copy that is changed in place: memory beside the model is scarce
    groups = weights.to(torch.float32, copy=True).view(*weights.shape[:-1], -1, GROUP)
    most, least = groups.amax(-1, keepdim=True), groups.amin(-1, keepdim=True)
    scales = (torch.where(most > -least, most, least) / (-8 if kind == "int4" else 127)).bfloat16()
    low, high = (-8, 7) if kind == "int4" else (-127, 127)
    groups.div_(scales.float().where(scales != 0, 1.0)).round_().clamp_(low, high)
    codes = groups.flatten(-2).to(torch.int8)
    return Packed(kind, pack_nibbles(codes + 8) if kind == "int4" else codes, scales.squeeze(-1))


def pack_nibbles(codes: torch.Tensor) -> torch.Tensor:
    """Returns codes 0..15 [.., I] as uint8 [.., I / 2], the first of two in the low half."""
    codes = codes.to(torch.uint8)
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


def unpack_nibbles(packed: torch.Tensor) -> torch.Tensor:
    """Returns the codes 0..15 [.., I], uint8, of uint8 [.., I / 2]."""
    return torch.stack([packed & 15, packed >> 4], dim=-1).flatten(-2)


def _values(packed: Packed) -> torch.Tensor:
    """Returns what the codes stand for, fp32 [.., O, I]."""
    match packed.kind:
        case "int4":
            return unpack_nibbles(packed.codes).float() - 8
        case "fp4":
            codes = unpack_nibbles(packed.codes).int()
            exponent, mantissa = (codes & 7) >> 1, codes & 1
            # computed, not looked up: a table would be copied to the device, and a captured pass may not wait for that
            quarters = torch.where(exponent == 0, 2 * mantissa, (2 + mantissa) << exponent)
            return torch.where(codes >= 8, -0.25, 0.25) * quarters
        case _:
            return packed.codes.float()
