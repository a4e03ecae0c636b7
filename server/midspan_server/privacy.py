"""Which files are kept out, by globs on their paths.

A glob without a slash is matched against every component of a path, one that ends in a slash against its folders
only, one with slashes inside against as many components in a row; `**` stands for any number of them. Case does not
matter, because `.ENV` holds the same secrets.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import unquote, urlsplit

from midspan_engine.errors import InputError

DEFAULT_GLOBS = (
    ".env*",
    "*.pem",
    "*.key",
    "*.cert",
    "*.crt",
    "id_rsa*",
    "id_ecdsa*",
    "id_ed25519*",
    "secrets.yml",
    "secrets.yaml",
    ".dev.vars",
    ".Renviron",
    ".netrc",
    ".git/",
    ".ssh/",
    ".aws/",
    ".gnupg/",
)
"""Files that usually hold secrets: what completion tools leave out by default, and the commonest key stores."""

_WILDCARD = re.compile(r"\[!?\]?[^\]]*\]|.", re.DOTALL)


def check_glob(glob: str) -> None:
    """Raises InputError for a glob that could not keep out what it is meant to."""
    if not glob.strip().strip("/\\"):
        raise InputError("a glob is empty")
    if "\0" in glob or "\n" in glob:
        raise InputError(f"the glob {glob!r} holds a control character")
    if "[" in _WILDCARD.findall(glob):
        raise InputError(f"the glob {glob!r} has a [ without a ]")
    try:
        _pattern(glob)
    except re.error as error:
        raise InputError(f"the glob {glob!r} cannot be read: {error}") from error


def path_of(uri: str) -> str:
    """Returns the path inside a URI of any scheme, decoded; all of a URI that is malformed."""
    try:
        return unquote(urlsplit(uri).path)
    except ValueError:
        return unquote(uri)


def names_of(path: str) -> tuple[str, ...]:
    """Returns the names of a file, absolute: a harmless one may link to a file that holds secrets."""
    with contextlib.suppress(OSError, ValueError):  # ValueError: a NUL in the path
        return (os.path.abspath(path), os.path.realpath(path))
    return (path,)


def first_match(path: str, globs: Sequence[str]) -> str | None:
    """Returns the first glob that matches a path, or None."""
    joined = "/" + "/".join(part for part in path.replace("\\", "/").lower().split("/") if part)
    return next((glob for glob in globs if _pattern(glob).search(joined)), None)


@lru_cache(maxsize=256)
def _pattern(glob: str) -> re.Pattern[str]:
    """Returns a pattern for paths in lower case whose components each follow a slash."""
    is_folder = glob.rstrip().endswith(("/", "\\"))
    parts = [part for part in glob.strip().replace("\\", "/").lower().split("/") if part and part != "."]
    body = "".join("(?:/[^/]+)*" if part == "**" else "/" + _component(part) for part in parts)
    return re.compile(body + ("/" if is_folder else "(?:/|$)"), re.DOTALL)


def _component(glob: str) -> str:
    """Returns the pattern of one component; no wildcard crosses a slash."""
    return _WILDCARD.sub(_wildcard, glob)


def _wildcard(found: re.Match[str]) -> str:
    text = found[0]
    if text.startswith("[") and len(text) > 2:
        inside = text[1:-1].replace("^", "\\^").replace("[", "\\[")
        return f"(?!/)[{'^' + inside[1:] if inside.startswith('!') else inside}]"
    return {"*": "[^/]*", "?": "[^/]"}.get(text) or re.escape(text)
