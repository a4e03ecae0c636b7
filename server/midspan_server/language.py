"""Names the language of a file the way editors do: LSP language ids."""

from __future__ import annotations

import re
from pathlib import PurePath

_BY_SUFFIX = {
    ".py": "python",
    ".pyi": "python",
    ".pyw": "python",
    ".c": "c",
    ".cpp": "cpp",
    ".go": "go",
    ".java": "java",
    ".js": "javascript",
    ".rb": "ruby",
    ".rs": "rust",
    ".sh": "shellscript",
    ".ts": "typescript",
}
"""The shipped checkpoint knows Python; the others are the commonest that a larger one may be asked for."""

UNKNOWN = "plaintext"
_PYTHON_SCRIPT = re.compile(r"#!.*[/ ]python[\d.]*(?:\s|\Z)")


def language_of(path: PurePath, text: str = "") -> str:
    """Returns the LSP language id of a file, from its name or else its `#!` line; "plaintext" if unknown."""
    named = _BY_SUFFIX.get(path.suffix.lower())
    return named or ("python" if _PYTHON_SCRIPT.match(text) else UNKNOWN)
