"""Experts that were packed while a checkpoint was loaded, kept on disk so that it is done once.

One file a tensor, written whole or not at all, so that what a killed process had finished counts. A file says which
source it was made from and the checksum of its contents; whatever does not match is made again in its place. A disk
that is full ends the keeping, not the loading.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
import zlib
from pathlib import Path

import platformdirs
import torch

from midspan_engine.errors import EngineError, MidspanError
from midspan_engine.formats.tensor_file import read_headers, read_metadata, read_rows, save_tensors
from midspan_kernels.packed import GROUP, IntegerKind, Packed

logger = logging.getLogger(__name__)

_VERSION = "1"
"""Of the rule by which plain weights are packed: whoever changes it counts up."""

_LEFT_FREE = 2**28
"""Bytes of a disk that are left to others. Chosen."""


def cache_folder(checkpoint: Path) -> Path:
    """Returns where the packed experts of a checkpoint are kept: a folder of its own below the user's caches."""
    key = hashlib.sha256(str(checkpoint.resolve()).encode(errors="replace")).hexdigest()[:16]
    return platformdirs.user_cache_path("midspan") / "weights" / key


class QuantisedCache:
    """The packed tensors of one checkpoint on disk."""

    def __init__(self, folder: Path, kind: IntegerKind) -> None:
        self._folder, self.kind = folder, kind
        self._is_writable = True

    def load(self, name: str, fingerprint: str) -> Packed | None:
        """Returns a tensor that was packed from this source, or None when it is not there or not whole."""
        file = self._file(name)
        if not file.exists():
            return None
        try:
            about = read_metadata(file)
            if about.get("source") != self._source(fingerprint):
                return None
            packed = Packed(self.kind, **{field: read_rows(entry) for field, entry in read_headers([file]).items()})
        except (MidspanError, TypeError) as error:
            logger.warning("a kept tensor is made again: %s", error)
            return None
        if about.get("crc32") != _checksum(packed):
            logger.warning("%s does not match its checksum and is made again", file)
            return None
        return packed

    def save(self, name: str, fingerprint: str, packed: Packed) -> None:
        """Keeps a packed tensor unless that would fill the disk."""
        if not self._is_writable:
            return
        packed = packed.map(lambda tensor: tensor.cpu())  # an accelerator may have packed it
        about = {"source": self._source(fingerprint), "crc32": _checksum(packed)}
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if (n_free := shutil.disk_usage(self._folder).free) < packed.n_bytes + _LEFT_FREE:
                raise EngineError(f"the disk of {self._folder} has {n_free / 1e9:.1f} GB left: free some space")
            save_tensors(packed.tensors(), self._file(name), about)
        except (OSError, MidspanError) as error:
            self._is_writable = False
            logger.warning("packed weights are not kept, so the next start packs them again: %s", error)

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.{self.kind}.safetensors"

    def _source(self, fingerprint: str) -> str:
        return f"{_VERSION} group {GROUP} {fingerprint}"


def _checksum(packed: Packed) -> str:
    """Returns the checksum of all fields. CRC-32 tells damage, which is all there is to fear in a user's own folder."""
    crc = 0
    for tensor in packed.tensors().values():
        crc = zlib.crc32(tensor.contiguous().view(-1).view(torch.uint8).numpy().data, crc)
    return f"{crc:08x}"
