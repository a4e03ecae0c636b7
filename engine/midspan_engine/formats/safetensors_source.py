"""Checkpoints in the Hugging Face layout, plain or quantised: one safetensors file, or shards with an index."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import torch

from midspan_engine.errors import CheckpointError
from midspan_engine.formats.layouts import Stored, find_matrix
from midspan_engine.formats.scheme import check_names, check_scheme, refusal
from midspan_engine.formats.source import check_exactly, rows_per_slab, some
from midspan_engine.formats.tensor_file import PLAIN_TYPES, Entry, read_headers, read_rows
from midspan_engine.models.checkpoint_names import is_skipped, split_expert_names
from midspan_kernels.packed import Packed, joined

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"

_OF_ACTIVATIONS = ("input_scale", "input_global_scale", "output_scale", "k_scale", "v_scale", "q_scale")
"""Endings of scales that belong to activations or to a quantised KV cache, which are not quantised here."""


class _IndexFile(msgspec.Struct):
    weight_map: dict[str, str]


class SafetensorsSource:
    """The tensors of a folder of safetensors files."""

    def __init__(self, folder: Path, n_experts: int, wanted: Mapping[str, torch.Size]) -> None:
        """Reads the headers.

        Raises CheckpointError for missing or truncated files, for unreadable quantisation, and unless the folder holds
        exactly the wanted tensors.
        """
        self._folder, self._n_experts, self._shapes = folder, n_experts, wanted
        check_scheme(folder)
        self._entries = read_headers(weight_files(folder), is_skipped)
        self._matrices: dict[str, Stored] = {}
        found = {name: shape for name, size in wanted.items() if (shape := self._find(name, size)) is not None}
        used = {name + ending for name, matrix in self._matrices.items() for ending in matrix.entries}
        extra = [name for name in self._entries if name not in used and not name.endswith(_OF_ACTIVATIONS)]
        check_names(self._folder, extra)
        coded = [f"{name} ({dtype})" for name in extra if (dtype := self._entries[name].dtype) not in PLAIN_TYPES]
        if coded:
            raise refusal(self._folder, f"into types that are no plain floats, without their scales: {some(coded)}")
        check_exactly(self._folder, found, wanted, extra)
        self._check_packing()

    def packed_bytes(self, name: str) -> int | None:
        """See `Source`."""
        matrices = [self._matrices[part] for part in self._parts(name)]
        if all(matrix.is_plain for matrix in matrices):
            return None
        return sum(entry.n_bytes for matrix in matrices for entry in matrix.entries.values())

    def slabs(self, name: str) -> Iterator[torch.Tensor | Packed]:
        """See `Source`."""
        if name not in self._matrices:
            for parts in split_expert_names(name, self._n_experts):
                yield self._expert(parts)
        elif (matrix := self._matrices[name]).is_plain:
            n_rows = rows_per_slab(self._shapes[name][0], matrix.entries[""].n_bytes)
            for first in range(0, self._shapes[name][0], n_rows):
                yield read_rows(matrix.entries[""], first, min(n_rows, self._shapes[name][0] - first))
        elif len(self._shapes[name]) == 2:
            yield self._packed(name)
        else:
            for expert in range(self._shapes[name][0]):
                yield self._packed(name, expert).map(lambda tensor: tensor[None])

    def fingerprint(self, name: str) -> str:
        """See `Source`."""
        files = sorted({entry.file for part in self._parts(name) for entry in self._matrices[part].entries.values()})
        stats = [(file, file.stat()) for file in files]
        return " ".join(f"{file.name} {stat.st_size} {stat.st_mtime_ns}" for file, stat in stats)

    def _parts(self, name: str) -> list[str]:
        if name in self._matrices:
            return [name]
        return [part for parts in split_expert_names(name, self._n_experts) for part in parts]

    def _find(self, name: str, size: torch.Size) -> tuple[int, ...] | None:
        """Notes how a tensor is stored; returns its shape, that of the whole where the experts are split."""
        if matrix := find_matrix(name, self._entries, size[-1]):
            self._matrices[name] = matrix
            return matrix.shape
        shape = None
        for parts in split_expert_names(name, self._n_experts):
            matrices = [find_matrix(part, self._entries, size[-1]) for part in parts]
            shapes = [matrix.shape for matrix in matrices if matrix]
            if len(shapes) < len(parts):
                return None
            self._matrices |= {part: matrix for part, matrix in zip(parts, matrices, strict=True) if matrix}
            of_expert = (sum(part[0] for part in shapes), *shapes[0][1:])
            if shape not in (None, of_expert) or any(part[1:] != shapes[0][1:] for part in shapes):
                return of_expert
            shape = of_expert
        return (self._n_experts, *shape) if shape else None

    def _check_packing(self) -> None:
        """Raises CheckpointError unless the tensors of each packed matrix, and the matrices of all experts, fit."""
        for name, matrix in self._matrices.items():
            if (told := matrix.misfit) is not None:
                raise refusal(self._folder, f"{name} has {told}")
        for name in self._shapes:
            first, *others = self._parts(name)
            for other in others:
                if self._matrices[other].way != self._matrices[first].way:
                    raise refusal(self._folder, f"{other} is not packed as {first} is")

    def _expert(self, parts: list[str]) -> torch.Tensor | Packed:
        """Returns one expert's matrices below each other, [1, O, I]."""
        if all(self._matrices[part].is_plain for part in parts):
            return torch.cat([read_rows(self._matrices[part].entries[""]) for part in parts])[None]
        return joined([self._packed(part) for part in parts], -2).map(lambda tensor: tensor[None])

    def _packed(self, name: str, expert: int | None = None) -> Packed:
        def read(entry: Entry) -> torch.Tensor:
            return read_rows(entry) if expert is None else _of_expert(entry, expert, self._n_experts)

        return self._matrices[name].packed(read)


def weight_files(folder: Path) -> list[Path]:
    """Returns the files that hold a folder's weights; all of them exist. Raises CheckpointError otherwise."""
    if (folder / SINGLE_FILE).exists():
        return [folder / SINGLE_FILE]
    index = folder / INDEX_FILE
    if not index.exists():
        pickles = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in folder.glob(pattern))
        if pickles:
            raise CheckpointError(
                f"{folder} holds weights as pickle only ({some(pickles)}), and only safetensors are loaded: "
                "give a safetensors checkpoint"
            )
        raise CheckpointError(f"{folder} holds neither {SINGLE_FILE} nor {INDEX_FILE}: download the weights too")
    try:
        names = sorted(set(msgspec.json.decode(index.read_bytes(), type=_IndexFile).weight_map.values()))
    except (OSError, msgspec.DecodeError) as error:
        raise CheckpointError(f"{index} is not usable ({error}): download it again") from error
    outside = [name for name in names if Path(name).name != name or not name.endswith(".safetensors")]
    if outside:
        raise CheckpointError(
            f"{index} names files that are no safetensors of its folder ({some(outside)}): download it again"
        )
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise CheckpointError(f"{folder} lacks {len(missing)} of {len(names)} shards ({some(missing)}): download them")
    return [folder / name for name in names]


def _of_expert(entry: Entry, expert: int, n_experts: int) -> torch.Tensor:
    """Returns what a fused tensor says of one expert, or the whole when it has no dimension of experts."""
    if entry.shape[:1] != (n_experts,) or math.prod(entry.shape) == 1:
        return read_rows(entry)
    return read_rows(entry, expert, 1)[0]
