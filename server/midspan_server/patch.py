"""Changes of a source as a unified diff of the file itself, which `git apply` and `patch` take."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from midspan_server.hunks import Hunk, applied
from midspan_server.plain_text import PlainText
from midspan_server.source import BYTE_ORDER_MARK, Source
from midspan_server.text import snapshot

_QUOTED = re.compile(r'[\x00-\x1f\x7f"\\\udc80-\udcff]')
"""Characters, and bytes that are not UTF-8, for which git writes a name in quotes."""


def changed(source: Source, changes: Sequence[Hunk]) -> str:
    """Returns the file's text with changes made, all else as it was written."""
    mark = BYTE_ORDER_MARK if source.written.startswith(BYTE_ORDER_MARK) else ""
    plain = PlainText(snapshot(source.written.removeprefix(mark)))
    placed = [
        Hunk(plain.to_document(each.start), plain.to_document(each.end), source.to_file(each.text)) for each in changes
    ]
    return mark + applied(plain.snapshot.text, placed)


def diff_of(source: Source, changes: Sequence[Hunk]) -> list[str]:
    """Returns the lines of a unified diff, whose names start at `base_of`."""
    name = os.path.relpath(source.path.absolute(), base_of(source.path))
    old, new = _lines(source.written), _lines(changed(source, changes))
    lines = difflib.unified_diff(old, new, _label(f"a/{name}"), _label(f"b/{name}"))
    return [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines]


def base_of(path: Path) -> Path:
    """Returns the folder in which a diff of a file is to be applied: this one, or else one around it and the file.

    Both programs refuse names that lead out of their folder.
    """
    return Path(os.path.commonpath([Path.cwd(), Path(os.path.abspath(path)).parent]))


def _label(name: str) -> str:
    """Returns a name as the head of a diff has it: GNU diff ends one with blanks in a tab."""
    if not _QUOTED.search(name):
        return f"{name}\t" if " " in name else name
    escaped = (
        chr(byte) if 0x20 <= byte < 0x7F and byte not in b'"\\' else f"\\{byte:03o}" for byte in os.fsencode(name)
    )
    return f'"{"".join(escaped)}"'


def _lines(text: str) -> list[str]:
    """Returns the lines of a text with their ends; only LF ends a line."""
    *whole, rest = text.split("\n")
    return [line + "\n" for line in whole] + ([rest] if rest else [])
