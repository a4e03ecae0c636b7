"""The other files of a workspace folder, as far as they may be read beside a document."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec
from pathspec import GitIgnoreSpec

MAX_BYTES = 200_000
"""Of a file; longer ones are mostly data. Chosen."""
MAX_ALL_BYTES = 1_400_000
"""Of all files, the nearest first: about what the engine has room for."""
LOOK_S = 3.0
"""How long a folder is looked through at most, on a thread of its own. Chosen."""
_COPIES = frozenset({"node_modules", "site-packages", "__pycache__", "build", "dist"})
"""Folders of what was installed or built; `.venv` and the like are hidden, others are known by their pyvenv.cfg."""

Stamp = tuple[int, int]
"""When a file was changed last (ns), and its size."""


class Found(msgspec.Struct, frozen=True):
    """A file and its text."""

    path: str
    stamp: Stamp
    text: str


def look_through(
    folder: str,
    near: str,
    is_private: Callable[[str], bool],
    known: Mapping[str, Stamp],
    is_stopped: Callable[[], bool],
) -> tuple[set[str], list[Found]]:
    """Returns the files of a folder that end as `near` does, and the texts of those that have changed since `known`.

    The nearest to `near` in the tree come first, as many as MAX_ALL_BYTES holds. Hidden files, links, what git ignores,
    what was built or installed, and what `is_private` says of a path are left out.
    """
    deadline = time.monotonic() + LOOK_S

    def is_over() -> bool:
        return is_stopped() or time.monotonic() > deadline

    paths = [path for path in _files(folder, Path(near).suffix, is_over) if not is_private(path)]
    paths.sort(key=lambda path: (_distance(path, near), path))
    kept, changed, n_bytes = set[str](), list[Found](), 0
    for path in paths:
        if is_stopped():
            break
        try:
            status = os.stat(path)
            stamp = status.st_mtime_ns, status.st_size
            if stamp[1] > MAX_BYTES or n_bytes + stamp[1] > MAX_ALL_BYTES:
                continue
            if known.get(path) != stamp:
                changed.append(Found(path, stamp, Path(path).read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError):
            continue
        n_bytes += stamp[1]
        kept.add(path)
    return kept, changed


def _files(folder: str, suffix: str, is_over: Callable[[], bool]) -> Iterator[str]:
    rules: dict[str, list[tuple[str, GitIgnoreSpec]]] = {}
    for place, folders, names in os.walk(folder):
        if is_over():
            return
        own = [*rules.pop(place, ()), *_ignored_in(place, names)]

        def is_left_out(
            name: str, end: str = "", *, place: str = place, own: list[tuple[str, GitIgnoreSpec]] = own
        ) -> bool:
            path = os.path.join(place, name)
            hidden = name.startswith(".") or os.path.islink(path)
            return hidden or any(spec.match_file(os.path.relpath(path, top) + end) for top, spec in own)

        folders[:] = [
            name
            for name in folders
            if name not in _COPIES
            and not is_left_out(name, "/")
            and not os.path.exists(os.path.join(place, name, "pyvenv.cfg"))
        ]
        rules |= {os.path.join(place, name): own for name in folders if own}
        yield from (os.path.join(place, name) for name in names if name.endswith(suffix) and not is_left_out(name))


def _ignored_in(place: str, names: list[str]) -> Iterator[tuple[str, GitIgnoreSpec]]:
    if ".gitignore" in names:
        try:
            lines = Path(place, ".gitignore").read_text(encoding="utf-8", errors="replace").splitlines()
            yield place, GitIgnoreSpec.from_lines(lines)
        except (OSError, ValueError):
            return  # as if it was not there, as git does


def _distance(path: str, near: str) -> int:
    """Returns how many steps in the tree lie between two files."""
    own, other = os.path.dirname(path), os.path.dirname(near)
    shared = os.path.commonpath([own, other])
    return sum(len(Path(place).parts) - len(Path(shared).parts) for place in (own, other))
