"""The place where clients meet the engine host: a private folder, a lock and a listening socket.

The lock decides which of several hosts started at once may live; it is held for the life of the process, so that a
socket found beside a free lock belongs to a dead host and may be removed. A host that ends in order removes both.
"""

from __future__ import annotations

import fcntl
import os
import socket
import stat
from pathlib import Path

from midspan_engine.errors import EngineError, InputError


class Endpoint:
    """Holds the socket of one engine host until `close`, and the lock until `release` or the end of the process."""

    def __init__(self, path: Path, listener: socket.socket, *, is_inherited: bool) -> None:
        self.path = path
        self.listener = listener
        self.is_inherited = is_inherited
        """Whether the host before this one died so suddenly that its socket stayed behind."""
        self._inode = path.stat().st_ino

    @classmethod
    def claim(cls, path: Path) -> Endpoint | None:
        """Takes the lock and binds the socket at `path`; None when another host holds the lock.

        Raises InputError for a folder that other users can reach or a path that is no place for a socket.
        """
        require_private_folder(path.parent)
        lock_fd = _take_lock(_lock_path(path))
        if lock_fd is None:
            return None
        is_inherited = path.is_socket()
        try:
            return cls(path, _bind(path), is_inherited=is_inherited)
        except BaseException:
            os.close(lock_fd)
            raise

    def is_intact(self) -> bool:
        """Tells whether clients still find this socket, which cleaners of temporary folders may have removed."""
        try:
            return self.path.stat().st_ino == self._inode
        except OSError:
            return False

    def close(self) -> None:
        """Removes the socket: from now on clients look for another host, which waits for the lock."""
        if self.is_intact():
            self.path.unlink(missing_ok=True)
        self.listener.close()

    def release(self) -> None:
        """Removes the lock file, as the last thing the process does: the next host may take the memory then."""
        _lock_path(self.path).unlink(missing_ok=True)


def require_private_folder(folder: Path) -> None:
    """Creates `folder` for this user alone, or checks that it is so. Raises InputError when it is not."""
    try:
        for missing in reversed([parent for parent in (folder, *folder.parents) if not parent.exists()]):
            missing.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise InputError(f"the socket's folder {folder} cannot be used ({error.strerror}); choose another") from error
    if not stat.S_ISDIR(found.st_mode):
        raise InputError(f"{folder} is not a folder; choose another place for the engine's socket")
    if found.st_uid != os.getuid():
        raise InputError(f"the folder {folder} belongs to another user; choose one of your own for the engine's socket")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise InputError(f"the folder {folder} is open to other users; run `chmod 700 {folder}` or choose another")


def _lock_path(socket_path: Path) -> Path:
    return socket_path.with_suffix(".lock")


def _take_lock(path: Path) -> int | None:
    while True:
        try:
            lock_fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise InputError(f"the lock file {path} cannot be opened ({error.strerror}); remove it") from error
        try:
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock_fd)
            return None
        except OSError as error:
            os.close(lock_fd)
            raise EngineError(f"{path} cannot be locked ({error.strerror}); choose a folder on a local disk") from error
        if _is_same_file(lock_fd, path):
            return lock_fd
        # Its holder removed it between our opening and locking it: a lock that nobody else can find protects nothing.
        os.close(lock_fd)


def _is_same_file(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.lstat())
    except FileNotFoundError:
        return False


def _bind(path: Path) -> socket.socket:
    """Binds a socket that only this user may open; it refuses connections until somebody listens on it."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)
        listener.bind(str(path))
        path.chmod(0o600)
    except OSError as error:
        listener.close()
        raise InputError(f"no socket can be made at {path} ({error.strerror or error}); choose another path") from error
    return listener
