"""Packed data as one file that is small enough to carry to another machine: what a run reads there.

A tar archive, compressed by xz: the ids of Python code take 4.5 bits each (measured on 6 million of them), so that the
whole corpus, 74 million tokens, fits 48 MiB; 12-bit ids would hold less than half of it. What does not fit is left
out: documents are packed in shuffled order, so the first ones are as varied as all.
"""

from __future__ import annotations

import lzma
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path

from midspan_engine.errors import InputError

ARCHIVE_BYTES = 48 * 2**20
_NAMES = ("tokenizer.json", "packages.json", "held.bin", "train.bin")
"""In this order: the one that may be cut comes last."""
_TOKEN_BYTES = 2
_MARGIN = 0.98
"""How much of what should fit is tried again where the first try was too large."""


def write_archive(files: Mapping[str, Path], target: Path, *, max_bytes: int = ARCHIVE_BYTES) -> int:
    """Writes an archive of files by name and returns how many tokens of the training split it holds.

    The names are tokenizer.json, held.bin, train.bin and, for the model card, packages.json. Raises InputError when
    even a short training split would not fit.
    """
    n_tokens = files["train.bin"].stat().st_size // _TOKEN_BYTES
    draft = target.with_name(f".{target.name}.part")
    while True:
        with tarfile.open(draft, "w:xz") as archive:
            for name in _NAMES:
                if name in files:
                    _add(archive, files[name], name, _TOKEN_BYTES * n_tokens if name == "train.bin" else None)
        size = draft.stat().st_size
        if size <= max_bytes:
            draft.replace(target)
            return n_tokens
        n_tokens = int(n_tokens * _MARGIN * max_bytes / size)
        if n_tokens == 0:
            draft.unlink()
            raise InputError(f"tokenizer and held-out split alone take more than {max_bytes} bytes: pack fewer files")


def unpack_archive(source: Path, folder: Path) -> None:
    """Unpacks an archive of data. Raises InputError when the file is none."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(source, "r:xz") as archive:
            for name in _NAMES:
                member = archive.extractfile(name) if name in archive.getnames() else None
                if member is not None:
                    with (folder / f"{name}.part").open("wb") as target:
                        shutil.copyfileobj(member, target)
                    (folder / f"{name}.part").replace(folder / name)
    except (OSError, EOFError, tarfile.TarError, lzma.LZMAError) as error:
        raise InputError(f"{source} holds no packed data ({error}): make it with `midspan train pack`") from error


def _add(archive: tarfile.TarFile, path: Path, name: str, n_bytes: int | None) -> None:
    info = tarfile.TarInfo(name)
    info.size = path.stat().st_size if n_bytes is None else n_bytes
    with path.open("rb") as content:
        archive.addfile(info, content)
