"""Names the language of a file the way editors do: LSP language ids."""

from __future__ import annotations

from pathlib import PurePath

_BY_SUFFIX = {
    ".bash": "shellscript",
    ".c": "c",
    ".cc": "cpp",
    ".cpp": "cpp",
    ".cs": "csharp",
    ".css": "css",
    ".go": "go",
    ".h": "c",
    ".hpp": "cpp",
    ".html": "html",
    ".java": "java",
    ".js": "javascript",
    ".json": "json",
    ".jsx": "javascriptreact",
    ".kt": "kotlin",
    ".lua": "lua",
    ".md": "markdown",
    ".php": "php",
    ".pl": "perl",
    ".py": "python",
    ".pyi": "python",
    ".pyw": "python",
    ".r": "r",
    ".rb": "ruby",
    ".rs": "rust",
    ".rst": "restructuredtext",
    ".scala": "scala",
    ".sh": "shellscript",
    ".sql": "sql",
    ".swift": "swift",
    ".toml": "toml",
    ".ts": "typescript",
    ".tsx": "typescriptreact",
    ".txt": "plaintext",
    ".vim": "vim",
    ".xml": "xml",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".zsh": "shellscript",
}
_BY_NAME = {"Dockerfile": "dockerfile", "Makefile": "makefile", "SConstruct": "python", "SConscript": "python"}
_BY_INTERPRETER = {
    "bash": "shellscript",
    "lua": "lua",
    "node": "javascript",
    "perl": "perl",
    "python": "python",
    "ruby": "ruby",
    "sh": "shellscript",
    "zsh": "shellscript",
}


def language_of(path: PurePath, text: str = "") -> str:
    """Returns the LSP language id of a file, from its name or else its `#!` line; "plaintext" if unknown."""
    named = _BY_NAME.get(path.name) or _BY_SUFFIX.get(path.suffix.lower())
    return named or _from_shebang(text) or "plaintext"


def _from_shebang(text: str) -> str | None:
    """Returns the language of a first line such as `#!/usr/bin/env -S python3.11 -u`, None for any other line."""
    if not text.startswith("#!"):
        return None
    words = [PurePath(word).name for word in text[2:].split("\n", 1)[0].split()]
    programs = [word for word in words if word != "env" and not word.startswith("-") and "=" not in word]
    return _BY_INTERPRETER.get(programs[0].rstrip("0123456789.")) if programs else None
