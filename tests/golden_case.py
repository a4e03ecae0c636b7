"""Golden cases: a document with `║` for the cursor, what the engine offers, and what the user is shown of it.

`├` and `┤` enclose what accepting inserts. The files are TOML, written by `pytest tests/test_golden.py --regenerate`.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import msgspec

from midspan_server.settings import Trigger

FOLDER = Path(__file__).parent / "golden"


class Case(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One situation. Exactly one of `text` and `cells` is given, one of `shown` and `silence` comes out."""

    name: str
    text: str | None = None
    cells: list[str] | None = None
    """The cells of a notebook, of which one holds the cursor."""
    language: str = "python"
    path: str = "/home/me/a.py"
    trigger: Trigger = "automatic"
    selected: str | None = None
    """The item chosen in the completion menu; it replaces the word before the cursor."""
    offers: list[str] | None = None
    """The engine's candidates, best first; None where it must not be asked."""
    typed: str = ""
    """What the user types at the cursor while the engine is at work."""
    asked: list[str] | None = None
    """What stands before and after the gap as the engine is told; given where the case is about that."""
    several_lines: bool | None = None
    """Whether the gap may hold line breaks; given where the case is about that."""
    shown: list[str] | None = None
    """The document after each suggestion was accepted, best first."""
    silence: str | None = None


class Cases(msgspec.Struct):
    """A file of cases about one subject."""

    case: list[Case]


def read_cases(path: Path) -> list[Case]:
    return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Cases).case


def write_cases(path: Path, cases: list[Case]) -> None:
    """Writes a file anew; the comment at its top stays."""
    lines = path.read_text(encoding="utf-8").splitlines()
    head = "\n".join(line for line in lines[: next(i for i, line in enumerate(lines) if line == "[[case]]")]).strip()
    path.write_text("\n\n".join([head, *map(_table, cases)]) + "\n", encoding="utf-8")


def _table(case: Case) -> str:
    fields = msgspec.to_builtins(case)
    return "\n".join(["[[case]]", *(f"{name} = {_value(value)}" for name, value in fields.items())])


def _value(value: object) -> str:
    if isinstance(value, list):
        values = [_value(each) for each in value]
        is_short = len(", ".join(values)) < 100 and not any("\n" in each for each in values)
        return f"[{', '.join(values)}]" if is_short else "[\n" + "".join(f"{each},\n" for each in values) + "]"
    if isinstance(value, str) and "\n" in value and "'''" not in value and value.replace("\n", "").isprintable():
        return f"'''\n{value}'''"
    return json.dumps(value, ensure_ascii=False)
