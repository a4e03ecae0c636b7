"""Checkpoints as one GGUF file, beside the config.json and tokenizer.json of the checkpoint that it was made from."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import torch

from midspan_engine.errors import CheckpointError
from midspan_engine.formats.gguf_blocks import BLOCKS, packed_rows
from midspan_engine.formats.source import check_exactly, rows_per_slab, some
from midspan_engine.formats.tensor_file import read_bytes
from midspan_kernels.packed import Packed

ARCHITECTURE = "diffusion-gemma"

_PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_COMPUTED = {"rope_freqs.weight"}
"""Tensors that follow from config.json."""

_OUTER = {
    "model.decoder.embed_tokens.weight": "token_embd.weight",
    "model.decoder.norm.weight": "output_norm.weight",
    "model.decoder.self_conditioning.pre_norm.weight": "self_cond_pre_norm.weight",
    "model.decoder.self_conditioning.gate_proj.weight": "self_cond_gate.weight",
    "model.decoder.self_conditioning.up_proj.weight": "self_cond_up.weight",
    "model.decoder.self_conditioning.down_proj.weight": "self_cond_down.weight",
}
_OF_LAYER = {
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "pre_feedforward_layernorm.weight": "ffn_norm.weight",
    "pre_feedforward_layernorm_2.weight": "pre_ffw_norm_2.weight",
    "post_feedforward_layernorm.weight": "post_ffw_norm.weight",
    "post_feedforward_layernorm_1.weight": "post_ffw_norm_1.weight",
    "post_feedforward_layernorm_2.weight": "post_ffw_norm_2.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
    "router.proj.weight": "ffn_gate_inp.weight",
    "router.scale": "ffn_gate_inp.scale",
    "router.per_expert_scale": "ffn_down_exps.scale",
    "experts.gate_up_proj": "ffn_gate_up_exps.weight",
    "experts.down_proj": "ffn_down_exps.weight",
    "layer_scalar": "layer_output_scale.weight",
}
_DECODER_LAYER, _ENCODER_LAYER = "model.decoder.layers.", "model.encoder.language_model.layers."


def gguf_name(name: str) -> str:
    """Returns GGUF's name of a checkpoint's tensor. Source: llama.cpp's converter of diffusion-gemma."""
    if name in _OUTER:
        return _OUTER[name]
    is_encoder = name.startswith(_ENCODER_LAYER)
    layer, _, leaf = name.removeprefix(_ENCODER_LAYER if is_encoder else _DECODER_LAYER).partition(".")
    return f"blk.{layer}.{'enc_' if is_encoder else ''}{_OF_LAYER[leaf]}"


class _Stored(msgspec.Struct, frozen=True):
    kind: str
    shape: tuple[int, ...]
    start: int
    n_bytes: int


class GgufSource:
    """The tensors of one GGUF file."""

    def __init__(self, file: Path, wanted: Mapping[str, torch.Size]) -> None:
        """Reads the header.

        Raises CheckpointError without the gguf package, for a foreign or truncated file, and unless it holds exactly
        the wanted tensors.
        """
        self._file = file
        self._stored = _read_header(file)
        names = {gguf_name(name): name for name in wanted}
        unknown = [
            f"{name} ({tensor.kind})"
            for name, tensor in self._stored.items()
            if name in names and tensor.kind not in BLOCKS and tensor.kind not in _PLAIN
        ]
        if unknown:
            raise CheckpointError(
                f"{self._file} holds weights in formats that are not supported ({some(unknown)}): "
                "use a file of the mixture Q4_K_M, Q5_K_M, Q6_K or Q8_0"
            )
        found = {own: self._stored[name].shape for name, own in names.items() if name in self._stored}
        extra = [name for name in self._stored if name not in names and name not in _COMPUTED]
        check_exactly(self._file, found, wanted, extra)

    def packed_bytes(self, name: str) -> int | None:
        """See `Source`."""
        tensor = self._stored[gguf_name(name)]
        if tensor.kind in _PLAIN:
            return None
        return packed_rows(tensor.kind, self._read(tensor, 0, 1), tensor.shape[-1]).n_bytes * _n_rows(tensor)

    def slabs(self, name: str) -> Iterator[torch.Tensor | Packed]:
        """See `Source`."""
        tensor = self._stored[gguf_name(name)]
        of_first = _n_rows(tensor) // tensor.shape[0]  # rows of one expert, else 1
        step = rows_per_slab(tensor.shape[0], tensor.n_bytes)
        for first in range(0, tensor.shape[0], step):
            n = min(step, tensor.shape[0] - first)
            data = self._read(tensor, first * of_first, n * of_first)
            if tensor.kind in _PLAIN:
                yield data.view(_PLAIN[tensor.kind]).view(n, *tensor.shape[1:])
            else:
                shape = (n, *tensor.shape[1:-1])
                rows = packed_rows(tensor.kind, data, tensor.shape[-1])
                yield rows.map(lambda field, shape=shape: field.view(*shape, field.shape[-1]))  # type: ignore[misc]

    def fingerprint(self, name: str) -> str:
        """See `Source`."""
        stat = self._file.stat()
        return f"{self._file.name} {stat.st_size} {stat.st_mtime_ns}"

    def _read(self, tensor: _Stored, first: int, n_rows: int) -> torch.Tensor:
        of_row = tensor.n_bytes // _n_rows(tensor)
        return torch.frombuffer(
            read_bytes(self._file, tensor.start + first * of_row, n_rows * of_row), dtype=torch.uint8
        )


def _n_rows(tensor: _Stored) -> int:
    """Returns how many rows of inputs there are; of a vector each number is one, as its slabs are cut there."""
    return math.prod(tensor.shape[:-1]) if len(tensor.shape) > 1 else tensor.shape[0]


def _read_header(file: Path) -> dict[str, _Stored]:
    try:
        # An extra that only GGUF files need.
        from gguf import GGUFReader
    except ImportError as error:
        raise CheckpointError(f"{file} needs the package gguf: run `pip install 'midspan[gguf]'`") from error
    try:
        reader: Any = GGUFReader(file)
        architecture = reader.fields["general.architecture"].contents()
        tensors = {
            tensor.name: _Stored(
                kind=tensor.tensor_type.name,
                shape=tuple(int(size) for size in reversed(tensor.shape)),
                start=int(tensor.data_offset),
                n_bytes=int(tensor.n_bytes),
            )
            for tensor in reader.tensors
        }
    except (OSError, ValueError, LookupError, OverflowError) as error:
        raise CheckpointError(f"{file} is truncated or no GGUF file ({error}): download it again") from error
    if architecture != ARCHITECTURE:
        raise CheckpointError(f"{file} holds a {architecture} model, not {ARCHITECTURE}: give a DiffusionGemma file")
    return tensors
