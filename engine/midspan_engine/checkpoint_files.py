"""The files of a checkpoint, looked at now and then: whether they are others than those in use."""

from __future__ import annotations

import os
import time
from fnmatch import fnmatch
from pathlib import Path

PARTS = ("*config.json", "tokenizer.json", "*.jinja", "model*.safetensors", "model.safetensors.index.json", "*.gguf")
"""Names of what a checkpoint consists of. A training run may write its own files beside them all the time."""


class CheckpointFiles:
    """Compares a folder with what was read from it."""

    LOOK_S = 1.0
    """How often the folder is looked at. It is read again once two looks agree, and not while files are still being
    copied into it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._used: list[tuple[str, int, int]] = []
        self._seen: list[tuple[str, int, int]] = []
        self._looked = 0.0

    @property
    def is_look_due(self) -> bool:
        """Whether the last look is long enough ago."""
        return time.monotonic() - self._looked > self.LOOK_S

    def use(self) -> None:
        """Takes the files as they are for those in use: they are read now."""
        self._used = self._seen = self._fingerprint()

    def have_changed(self, *, is_urgent: bool) -> bool:
        """Looks, and tells whether there are others now, which two looks agree about unless it is urgent.

        False without the folder, as on a disk that was taken away: a loaded model serves on.
        """
        self._looked = time.monotonic()
        found, before = self._fingerprint(), self._seen
        self._seen = found
        return bool(found) and found != self._used and (is_urgent or found == before)

    def _fingerprint(self) -> list[tuple[str, int, int]]:
        """Returns name, time and size of every file: equal as long as nobody touched them."""
        try:
            files = [entry for entry in os.scandir(self._folder) if any(fnmatch(entry.name, part) for part in PARTS)]
            return sorted((file.name, file.stat().st_mtime_ns, file.stat().st_size) for file in files)
        except OSError:
            return []
