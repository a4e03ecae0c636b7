"""A file written anew in its place: whole or not at all, and still the same file to whoever owns or links it."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import BinaryIO

from midspan_engine.errors import InputError

_WRITABLE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


def rewrite(path: Path, old: bytes, new: bytes) -> None:
    """Replaces the content of a file, `old`; links, owner, mode and attributes stay.

    Raises InputError, having changed nothing, when the file holds something else by now or may not be written.
    """
    try:
        target = path.resolve()
        status = target.stat()
        # The superuser may write such a file too, and is told all the same: somebody has protected it.
        if not status.st_mode & _WRITABLE:
            raise InputError(f"{path} is read-only; nothing was changed: make it writable first")
        with target.open("r+b") as file:
            if file.read() != old:
                raise InputError(f"{path} changed meanwhile; nothing was written, ask again")
            if status.st_nlink > 1 or not _replaced(target, status, new):
                _overwrite(file, old, new)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}; nothing was changed") from error


def _replaced(target: Path, status: os.stat_result, new: bytes) -> bool:
    """Puts a new file in the place of the old one; False where this user may not make one that is its like."""
    try:
        handle, name = tempfile.mkstemp(prefix=".midspan-", dir=target.parent)
    except OSError:
        return False  # the folder takes no new file
    beside = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(new)
        os.chown(beside, status.st_uid, status.st_gid)
        shutil.copystat(target, beside)
        os.utime(beside)  # it is changed now: builds go by that
        beside.replace(target)
    except PermissionError:
        return False
    finally:
        with contextlib.suppress(OSError):
            beside.unlink()
    return True


def _overwrite(file: BinaryIO, old: bytes, new: bytes) -> None:
    """Writes into the file itself; what it held comes back when the disk is full."""
    try:
        _put(file, new)
    except OSError:
        with contextlib.suppress(OSError):
            _put(file, old)
        raise


def _put(file: BinaryIO, data: bytes) -> None:
    file.seek(0)
    file.write(data)
    file.truncate()
    file.flush()
