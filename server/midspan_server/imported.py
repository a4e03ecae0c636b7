"""The first lines of what a Python file imports from other open files: names, parameters, types."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping

N_READ = 100_000
"""Characters that are searched of a file, a millisecond's work. Chosen."""
N_HEAD_LINES = 32
"""Lines of the longest head. Chosen."""

# No bracket inside the list: every import that was never closed would be searched to the end of the file.
_IMPORT = re.compile(r"^[ \t]*from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^()]*\)|[^\n(]+)", re.MULTILINE)
_CONTINUES = (" ", "\t", ")", "]", "}")
"""What a line begins with that belongs to the definition above it."""
_NAME = re.compile(r"(\w+)(?:\s+as\s+\w+)?")


def imported(text: str, others: Mapping[str, str], budget: int, deadline_s: float) -> str:
    """Returns the heads of the definitions that a text imports, in the order of the imports, within so many characters.

    `others` holds the texts of files by path. What has been found at the deadline, a time of `time.perf_counter`,
    counts.
    """
    found = ""
    for module, name in _imports(text[:N_READ]):
        for path, other in others.items():
            if time.perf_counter() > deadline_s:
                return found and found + "\n"
            head = _head(other[:N_READ], name) if _is_module(path, module) else ""
            if head and len(found) + len(head) <= budget:
                found += head
    return found and found + "\n"


def _imports(text: str) -> Iterator[tuple[str, str]]:
    for statement in _IMPORT.finditer(text):
        for name in _NAME.finditer(statement[2].strip("()")):
            yield statement[1], name[1]


def _is_module(path: str, module: str) -> bool:
    stem = path.replace("\\", "/").removesuffix(".py").removesuffix("/__init__")
    return stem.endswith("/" + module.lstrip(".").replace(".", "/"))


def _head(text: str, name: str) -> str:
    """Returns the lines of a definition at the left margin up to its colon."""
    found = re.search(rf"^(?:async def|def|class) {re.escape(name)}\b", text, re.MULTILINE)
    head: list[str] = []
    for line in text[found.start() :].split("\n", N_HEAD_LINES)[:N_HEAD_LINES] if found else ():
        if head and not line.startswith(_CONTINUES):
            break
        head.append(line.rstrip())
        if head[-1].endswith(":"):
            return "\n".join(head) + " ...\n"
    return ""
