"""Weights of a checkpoint in pieces of at most 16 MiB, as many services that carry files want them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch

from midspan_engine.formats.safetensors_source import INDEX_FILE, SINGLE_FILE, weight_files
from midspan_engine.formats.tensor_file import load_tensors, save_tensors
from midspan_engine.models.checkpoint_names import checkpoint_name

PIECE_BYTES = 16 * 2**20
"""A piece with its header is no larger."""
_HEADER_BYTES = 64 * 2**10
"""Left for a piece's header: 100 to 200 bytes a tensor, of which no piece has more than a few hundred."""


def save_in_pieces(
    weights: Mapping[str, torch.Tensor], folder: Path, dtype: torch.dtype, *, piece_bytes: int = PIECE_BYTES
) -> None:
    """Writes weights, given by the model's own names, as one file, or as shards with an index where that is too large.

    A tensor that is larger than a piece gets one to itself. Raises as `save_tensors`.
    """
    pieces: list[dict[str, torch.Tensor]] = [{}]
    n_bytes = 0
    for name, tensor in weights.items():
        size = tensor.numel() * dtype.itemsize
        if pieces[-1] and n_bytes + size > piece_bytes - min(_HEADER_BYTES, piece_bytes // 4):
            pieces.append({})
            n_bytes = 0
        pieces[-1][name] = tensor
        n_bytes += size
    if len(pieces) == 1:
        save_named(weights, folder / SINGLE_FILE, dtype)
        return
    weight_map: dict[str, str] = {}
    for index, piece in enumerate(pieces):
        file = f"model-{index + 1:05}-of-{len(pieces):05}.safetensors"
        save_named(piece, folder / file, dtype)
        weight_map |= {checkpoint_name(name): file for name in piece}
    total = sum(tensor.numel() * dtype.itemsize for tensor in weights.values())
    index_file = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / INDEX_FILE).write_text(json.dumps(index_file, indent=2) + "\n")


def save_named(weights: Mapping[str, torch.Tensor], target: Path, dtype: torch.dtype) -> None:
    """Writes weights, given by the model's own names, under the checkpoint's names. Raises as `save_tensors`."""
    save_tensors({checkpoint_name(name): tensor.to(dtype) for name, tensor in weights.items()}, target)


def read_pieces(folder: Path) -> dict[str, torch.Tensor]:
    """Returns a checkpoint's tensors by its own names. Raises CheckpointError when some are missing or damaged."""
    return {name: tensor for file in weight_files(folder) for name, tensor in load_tensors(file).items()}
