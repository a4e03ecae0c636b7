"""What the loader needs to know of a checkpoint, whatever its format: which tensors it has, and their parts in turn."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Protocol

import torch

from midspan_engine.errors import CheckpointError
from midspan_kernels.packed import Packed

SLAB_BYTES = 16 * 2**20
"""Most bytes that are read at once where a tensor can be cut, which bounds the memory beside the model. Chosen: two
experts of the 26B checkpoint.
"""

_N_NAMED = 3
"""Tensors that an error message names; the rest is counted."""


class Source(Protocol):
    """The tensors of a checkpoint by name: exactly those that the model wants, in their shapes."""

    def packed_bytes(self, name: str) -> int | None:
        """Returns what a tensor takes in memory as it is stored, or None when its weights are plain."""

    def slabs(self, name: str) -> Iterator[torch.Tensor | Packed]:
        """Yields a tensor's parts along its first dimension, all plain or all packed, at most one in memory at a time.

        Raises CheckpointError when they cannot be read.
        """

    def fingerprint(self, name: str) -> str:
        """Returns what changes when somebody replaces the file that holds a plain tensor."""


def check_exactly(
    folder: Path,
    found: Mapping[str, tuple[int, ...]],
    wanted: Mapping[str, torch.Size],
    extra: Collection[str],
) -> None:
    """Raises CheckpointError unless `found` are the wanted tensors in their shapes and nothing else was left over."""
    missing = [name for name in wanted if name not in found]
    if missing:
        raise CheckpointError(
            f"{folder} lacks {len(missing)} of {len(wanted)} tensors ({some(missing)}): "
            "its config.json belongs to another checkpoint, or the download is incomplete"
        )
    if extra:
        raise CheckpointError(
            f"{folder} holds {len(extra)} tensors that its config.json has no place for ({some(list(extra))}): "
            "give an unchanged DiffusionGemma checkpoint; adapters and other architectures are not supported"
        )
    odd = [
        f"{name} is {list(found[name])}, expected {list(shape)}"
        for name, shape in wanted.items()
        if found[name] != shape
    ]
    if odd:
        raise CheckpointError(
            f"{folder}: {len(odd)} tensors do not fit its config.json ({some(odd)}): "
            "give the config.json that belongs to these weights"
        )


def rows_per_slab(n_rows: int, n_bytes: int) -> int:
    """Returns how many rows of a tensor of that size make up a slab."""
    return max(1, min(n_rows, SLAB_BYTES * n_rows // max(1, n_bytes)))


def some(names: list[str]) -> str:
    """Returns the first few names and how many more there are."""
    more = f" and {len(names) - _N_NAMED} more" if len(names) > _N_NAMED else ""
    return ", ".join(names[:_N_NAMED]) + more
