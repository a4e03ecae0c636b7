"""The layouts in which a safetensors checkpoint holds one matrix, told by the tensors beside it.

A matrix `name` (that of a weight, or of the fused weights of all experts) is one tensor of plain floats, or codes with
scales under the same name and an ending:

=================== ========================= ============================================================= =======
layout              codes                     scales                                                        weights
=================== ========================= ============================================================= =======
NVFP4, modelopt     `name` U8                 `_scale` F8_E4M3 a group, `_scale_2` F32 the matrix           fp4
NVFP4               `name_packed` U8          `_scale` F8_E4M3 a group, divided by `_global_scale` F32      fp4
packed integers     `name_packed` I32         `_scale` a group or row, `_zero_point` I32 packed along rows  4, 8 bit
FP8                 `name` F8_E4M3            `_scale`, the matrix, a row or a group                        fp8
INT8                `name` I8                 `_scale`, the same                                            int8
=================== ========================= ============================================================= =======

The last four are compressed-tensors', FP8 modelopt's too. Source: the configurations of modelopt and
compressed-tensors, whose own dequantisation the tests compare with. Scales of activations are left alone: only weights
are packed here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
import torch

from midspan_engine.formats.scales import misfit, n_groups
from midspan_engine.formats.tensor_file import PLAIN_TYPES, Entry
from midspan_kernels.packed import Packed

_Tensors = Mapping[str, torch.Tensor]
"""The tensors of a matrix by ending."""


class Layout(msgspec.Struct, frozen=True):
    """One way to store a matrix: by the ending and the types of its codes, and by what stands beside them."""

    codes: str
    types: frozenset[str]
    needed: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    width: Callable[[int, int], int] = lambda n_codes, n_inputs: n_codes
    """Inputs of a row, by the codes of one and by the inputs that the model expects."""
    read: Callable[[_Tensors, int], Packed] | None = None
    """Packs tensors that fit each other to a matrix of so many inputs; None for plain floats."""


class Stored(msgspec.Struct, frozen=True):
    """A matrix of a checkpoint: how it is laid out, in which tensors, by ending, and how many inputs are expected."""

    layout: Layout
    entries: dict[str, Entry]
    n_inputs: int

    @property
    def is_plain(self) -> bool:
        """Whether its numbers are stored as they are."""
        return self.layout.read is None

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape, which the file gives but for packed integers: there the expected inputs tell 4 bits from 8."""
        stored = self.entries[self.layout.codes].shape
        return (*stored[:-1], *(self.layout.width(n_codes, self.n_inputs) for n_codes in stored[-1:]))

    @property
    def misfit(self) -> str | None:
        """What of its tensors does not fit the others, None when all do."""
        return None if self.is_plain else misfit(self.entries, self.layout.codes, self.shape)

    @property
    def way(self) -> tuple[object, ...]:
        """In which way it is packed: parts of one matrix need the same. Plain floats of all types are alike."""
        if self.is_plain:
            return ()
        codes = self.entries[self.layout.codes]
        fields = frozenset(self.entries) - {"_shape"}
        return codes.dtype, codes.shape[-1], fields, n_groups(self.entries["_scale"], self.shape)

    def packed(self, read: Callable[[Entry], torch.Tensor]) -> Packed:
        """Returns the matrix [O, I] from its tensors."""
        assert self.layout.read is not None, "a plain matrix is not packed"
        return self.layout.read({ending: read(entry) for ending, entry in self.entries.items()}, self.shape[-1])


def find_matrix(name: str, entries: Mapping[str, Entry], n_inputs: int) -> Stored | None:
    """Returns how a matrix is stored, or None when there is none of that name in a layout that can be read.

    `n_inputs` is what the model expects of it.
    """
    for layout in LAYOUTS:
        used = (layout.codes, *layout.needed, *layout.optional)
        there = {ending: entries[name + ending] for ending in used if name + ending in entries}
        if layout.codes in there and there[layout.codes].dtype in layout.types and there.keys() >= {*layout.needed}:
            return Stored(layout, there, n_inputs)
    return None


def _modelopt_fp4(tensors: _Tensors, n_inputs: int) -> Packed:
    return _fp4(tensors[""], tensors["_scale"], tensors["_scale_2"].float())


def _compressed_fp4(tensors: _Tensors, n_inputs: int) -> Packed:
    return _fp4(tensors["_packed"], tensors["_scale"], tensors["_global_scale"].float().reciprocal())


def _fp4(codes: torch.Tensor, scales: torch.Tensor, of_matrix: torch.Tensor) -> Packed:
    return Packed("fp4", codes, scales, row_scales=of_matrix.reshape(1, 1).repeat(codes.shape[-2], 1))


def _eight_bits(tensors: _Tensors, n_inputs: int) -> Packed:
    codes = tensors[""]
    return Packed("int8" if codes.dtype == torch.int8 else "fp8", codes, _of_groups(tensors["_scale"], codes))


def _width_of_words(n_words: int, n_inputs: int) -> int:
    return n_inputs if n_inputs in (8 * n_words, 4 * n_words) else 8 * n_words


def _integers(tensors: _Tensors, n_inputs: int) -> Packed:
    """Unpacks nothing: a little-endian word holds its codes, raised to be positive, lowest bits first."""
    codes, scales, zero_points = tensors["_packed"].view(torch.uint8), tensors["_scale"], tensors.get("_zero_point")
    if codes.shape[-1] == n_inputs:
        codes = (codes ^ 0x80).view(torch.int8)
        packed = Packed("int8", codes, _of_groups(scales, codes))
    else:
        packed = Packed("int4", codes, _of_groups(scales, codes))
    if zero_points is None:
        return packed
    n_outputs, bits = codes.shape[0], 8 if packed.kind == "int8" else 4
    shifts = torch.arange(0, 32, bits, dtype=torch.int32)
    zeros = (zero_points[:, None] >> shifts[:, None]) & (2**bits - 1)
    zeros = zeros.flatten(0, 1)[:n_outputs].float() - 2 ** (bits - 1)
    return Packed(packed.kind, codes, packed.scales, offsets=-zeros * packed.scales.float())


def _of_groups(scales: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    """Returns scales [O, G] of one for the matrix, one a row, or one a group."""
    n_outputs = codes.shape[0]
    if scales.numel() == 1:
        return scales.reshape(1, 1).repeat(n_outputs, 1)
    return scales[:, None] if scales.dim() == 1 else scales


LAYOUTS = (
    Layout("", frozenset({"U8"}), ("_scale", "_scale_2"), width=lambda n, _: 2 * n, read=_modelopt_fp4),
    Layout(
        "_packed",
        frozenset({"U8"}),
        ("_scale", "_global_scale"),
        ("_shape",),
        width=lambda n, _: 2 * n,
        read=_compressed_fp4,
    ),
    Layout(
        "_packed", frozenset({"I32"}), ("_scale",), ("_zero_point", "_shape"), width=_width_of_words, read=_integers
    ),
    Layout("", frozenset({"F8_E4M3", "I8"}), ("_scale",), read=_eight_bits),
    Layout("", frozenset(PLAIN_TYPES)),
)
"""Those of the table above, then plain floats; the first that fits is taken."""
