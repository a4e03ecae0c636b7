"""The files of a workspace folder that may be read beside a document."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePath

import msgspec

from midspan_engine.protocol import WORKSPACE_TOKENS
from midspan_server.git_ignore import Rules, is_ignored, rules_above, rules_in
from midspan_server.language import UNKNOWN, language_of
from midspan_server.text import valid

MAX_FILE_BYTES = 200_000
"""Of a file; longer ones are mostly data. Chosen."""
MAX_ALL_BYTES = 11 * WORKSPACE_TOKENS // 4
"""Of all files: code has hardly ever less than three bytes a token."""
MAX_FILES = 1000
"""Chosen."""
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


class Look(msgspec.Struct):
    """What was found in a folder."""

    paths: set[str]
    """The files that may be read, of some size."""
    changed: list[Found]
    """Those that are new or have changed."""
    is_cut_short: bool = False
    """True for a search that came to no end in its time."""


def look_through(
    folder: str,
    near: str,
    language: str,
    is_private: Callable[[str], bool],
    known: Mapping[str, Stamp],
    is_stopped: Callable[[], bool],
) -> Look:
    """Returns the files of a folder in a language, the nearest to `near` in the tree first, as far as limits allow.

    Read are those that have changed since they were `known`. Hidden files, links, what git ignores, what was built or
    installed, and what `is_private` says of a path are left out.
    """
    deadline = time.monotonic() + LOOK_S

    def is_over() -> bool:
        return is_stopped() or time.monotonic() > deadline

    look, n_bytes = Look(set(), []), 0
    if language == UNKNOWN:
        return look
    for path in _paths(folder, near, language, is_over):
        if is_over() or len(look.paths) == MAX_FILES:
            break
        if (stamp := _stamp(path)) is None or is_private(path):
            continue
        if n_bytes + stamp[1] > MAX_ALL_BYTES:
            break
        if known.get(path) != stamp:
            if (text := _text(path)) is None:
                continue
            look.changed.append(Found(path, stamp, text))
        n_bytes += stamp[1]
        look.paths.add(path)
    look.is_cut_short = is_over()
    return look


def _paths(folder: str, near: str, language: str, is_over: Callable[[], bool]) -> Iterator[str]:
    """Yields paths of a language: what lies below the folder of `near`, then below the one above it, and so on."""
    places = [(folder, rules_in(folder, rules_above(folder)))]
    for place in _between(folder, os.path.dirname(near)):
        rules = places[-1][1]
        if _is_left_out(place, rules):
            break
        places.append((place, rules_in(place, rules)))
    done = ""
    for place, rules in reversed(places):
        yield from _below(place, rules, language, done, is_over)
        done = place


def _between(folder: str, place: str) -> list[str]:
    """Returns the folders from the one below `folder` to `place`."""
    parts = Path(place).relative_to(folder).parts
    return [os.path.join(folder, *parts[: n + 1]) for n in range(len(parts))]


def _below(place: str, rules: Rules, language: str, done: str, is_over: Callable[[], bool]) -> Iterator[str]:
    """Yields the paths of a folder, then of those below it but `done`; `rules` are those that hold in it."""
    folders, files = list[str](), list[str]()
    try:
        with os.scandir(place) as entries:
            for entry in entries:
                if is_over():
                    return
                if entry.name.startswith(".") or entry.is_symlink() or entry.path != valid(entry.path):
                    continue
                if entry.is_dir():
                    folders.append(entry.path)
                elif entry.is_file() and language_of(PurePath(entry.name)) == language:
                    files.append(entry.path)
    except OSError:
        return
    for path in sorted(files):
        if is_over():
            return
        if not is_ignored(path, rules):
            yield path
    for path in sorted(folders):
        if path != done and not is_over() and not _is_left_out(path, rules):
            yield from _below(path, rules_in(path, rules), language, "", is_over)


def _is_left_out(folder: str, rules: Rules) -> bool:
    name = os.path.basename(folder)
    is_copy = name in _COPIES or os.path.exists(os.path.join(folder, "pyvenv.cfg"))
    return name.startswith(".") or is_copy or is_ignored(folder + "/", rules)


def _stamp(path: str) -> Stamp | None:
    """Returns the stamp of a file that is no more than a text may be; None for what is no file any more."""
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    is_text = stat.S_ISREG(status.st_mode) and status.st_size <= MAX_FILE_BYTES
    return (status.st_mtime_ns, status.st_size) if is_text else None


def _text(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            text = file.read(MAX_FILE_BYTES)
    except (OSError, UnicodeDecodeError):
        return None
    return None if "\0" in text else text
