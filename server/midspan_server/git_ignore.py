"""What git ignores in a folder: the rules of its repository, of the folders below and of the user."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from pathspec import GitIgnoreSpec

MAX_RULES_BYTES = 1_000_000
"""Of a file of rules; a larger one is none. Chosen."""

Rules = tuple[tuple[str, GitIgnoreSpec], ...]
"""Folders and the rules that hold below them."""


def rules_above(folder: str) -> Rules:
    """Returns the rules that hold in a folder whatever it says itself: of the user, and from its repository on down."""
    above = [folder, *map(str, Path(folder).parents)]
    top = next((n for n, place in enumerate(above) if os.path.exists(os.path.join(place, ".git"))), None)
    own = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    root = folder if top is None else above[top]
    found = [(root, os.path.join(own, "git", "ignore"))]
    if top is not None:
        found.append((root, os.path.join(root, ".git", "info", "exclude")))
        found += [(place, os.path.join(place, ".gitignore")) for place in above[top:0:-1]]
    return tuple((place, spec) for place, file in found if (spec := _spec(file)) is not None)


def rules_in(place: str, above: Rules) -> Rules:
    """Returns the rules that hold in a folder below one where others do."""
    spec = _spec(os.path.join(place, ".gitignore"))
    return above if spec is None else (*above, (place, spec))


def is_ignored(path: str, rules: Rules) -> bool:
    """Says whether a rule leaves a path out; that of a folder ends in a slash.

    A rule further down cannot bring back what one further up leaves out: in doubt a file is not read.
    """
    slash = "/" if path.endswith("/") else ""
    return any(spec.match_file(os.path.relpath(path, place) + slash) for place, spec in rules)


def _spec(file: str) -> GitIgnoreSpec | None:
    try:
        status = os.stat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_RULES_BYTES:
            return None
        lines = Path(file).read_text(encoding="utf-8-sig", errors="replace").splitlines()
    except OSError:
        return None
    return GitIgnoreSpec.from_lines(_usable(lines))


def _usable(lines: list[str]) -> Iterator[str]:
    """Yields the lines that are patterns; git passes over the others, too."""
    for line in lines:
        try:
            GitIgnoreSpec.from_lines([line])
        except Exception:  # the library lets errors of `re` out, which have no class in common with its own
            continue
        yield line
