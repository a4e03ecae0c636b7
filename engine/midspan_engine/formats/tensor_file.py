"""Safetensors files: headers checked by the library, contents read in pieces, files written whole or not at all.

The library maps a file into memory, where every page that was touched counts until the file is closed and a file cut
short by somebody else ends the process. Plain reads take no more memory than what they return, and fail as they should.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from midspan_engine.errors import CheckpointError, EngineError

_TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
}
"""Torch's types by their names in a header."""
PLAIN_TYPES = {"F64", "F32", "F16", "BF16"}
"""Names of the types that hold weights as they are."""


class Entry(msgspec.Struct, frozen=True):
    """One tensor as the header of its file describes it."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    """Where its bytes begin in the file."""
    n_bytes: int


class _Head(msgspec.Struct):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def read_headers(files: Iterable[Path], is_skipped: Callable[[str], bool] = lambda name: False) -> dict[str, Entry]:
    """Returns the tensors of all files by name, but for the skipped ones.

    Raises CheckpointError for a file that is truncated or foreign, and for a tensor that two files hold.
    """
    found: dict[str, Entry] = {}
    for file in files:
        for name, entry in _read_header(file).items():
            if is_skipped(name):
                continue
            if name in found:
                raise CheckpointError(
                    f"{file.parent}: {name} is in {found[name].file.name} and in {file.name}: "
                    "download the checkpoint into an empty folder"
                )
            found[name] = entry
    return found


def read_metadata(file: Path) -> dict[str, str]:
    """Returns what a file says of itself. Raises CheckpointError as `read_headers` does."""
    head = _raw_header(file)[1].get("__metadata__")
    return {} if head is None else msgspec.json.decode(head, type=dict[str, str])


def read_rows(entry: Entry, first: int = 0, n_rows: int | None = None) -> torch.Tensor:
    """Returns rows of a tensor along its first dimension, by default all of it, in memory of their own.

    Raises CheckpointError when they cannot be read.
    """
    shape = entry.shape
    if n_rows is not None:
        shape = (n_rows, *entry.shape[1:])
    dtype = _TYPES[entry.dtype]
    n_bytes = math.prod(shape) * dtype.itemsize
    start = entry.start + first * math.prod(entry.shape[1:]) * dtype.itemsize
    data = read_bytes(entry.file, start, n_bytes)
    return torch.frombuffer(data, dtype=dtype).view(shape) if n_bytes else torch.empty(shape, dtype=dtype)


def read_bytes(file: Path, start: int, n_bytes: int) -> bytearray:
    """Returns a piece of a file. Raises CheckpointError when it cannot be read or ends too early."""
    data = bytearray(n_bytes)
    try:
        with file.open("rb", buffering=0) as opened:
            opened.seek(start)
            rest = memoryview(data)
            while rest and (n_read := opened.readinto(rest)):
                rest = rest[n_read:]
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read ({error}): download it again") from error
    if rest:
        raise CheckpointError(f"{file} ends too early: download it again")
    return data


def save_tensors(tensors: Mapping[str, torch.Tensor], target: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Writes a safetensors file that everybody may read; an older file stays whole until the new one is.

    Raises EngineError if it cannot be written.
    """
    partial = target.with_name(f"{target.name}.partial")
    own = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        save_file(own, partial, metadata={"format": "pt", **(metadata or {})})
        partial.chmod(0o644)  # the library lets nobody else read, which a checkpoint in a shared place must allow
        os.replace(partial, target)
    except (OSError, SafetensorError) as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise EngineError(f"{target} cannot be written ({error}): free some space or give another folder") from error


def load_tensors(file: Path) -> dict[str, torch.Tensor]:
    """Returns the tensors of one safetensors file. Raises CheckpointError when it cannot be read."""
    try:
        return load_file(file)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{file} cannot be read ({error}): restore it from a copy, or begin anew") from error


def _read_header(file: Path) -> dict[str, Entry]:
    data_start, raw = _raw_header(file)
    heads = {name: msgspec.json.decode(head, type=_Head) for name, head in raw.items() if name != "__metadata__"}
    return {
        name: Entry(file, head.dtype, head.shape, data_start + head.data_offsets[0], _size(head.data_offsets))
        for name, head in heads.items()
    }


def _size(offsets: tuple[int, int]) -> int:
    return offsets[1] - offsets[0]


def _raw_header(file: Path) -> tuple[int, dict[str, Any]]:
    """Returns where the data begins and the header's values as JSON, both checked by the library."""
    try:
        with safe_open(file, framework="pt"):
            pass
        with file.open("rb") as opened:
            n_header = int.from_bytes(opened.read(8), "little")
            return 8 + n_header, msgspec.json.decode(opened.read(n_header), type=dict[str, msgspec.Raw])
    except (OSError, SafetensorError, msgspec.DecodeError) as error:
        raise CheckpointError(f"{file} is truncated or no safetensors file ({error}): download it again") from error
