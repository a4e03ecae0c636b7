"""Reads pieces of Python well enough to judge what is inserted into them: brackets, open strings, indentation.

Pieces are cut anywhere, so nothing here but the target of an annotation is parsed; what is not Python is not judged
with it.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, deque
from collections.abc import Iterable

OPENER_OF = {")": "(", "]": "[", "}": "{"}
CLOSER_OF = {opener: closer for closer, opener in OPENER_OF.items()}

TAB = 8
"""Columns of a tab, as Python's tokenizer counts them."""

_STRING_OR_COMMENT = (
    r"""(?P<triple>\"{3}|'{3})(?:\\[\s\S]|(?!(?P=triple))[^\\])*(?:(?P<closed3>(?P=triple))|\\?\Z)?"""
    r"""|(?P<quote>["'])(?:\\[\s\S]|(?!(?P=quote))[^\\\n])*(?:(?P<closed1>(?P=quote))|\\?\Z)?"""
    r"""|\#[^\n]*"""
)
_UNCODED = re.compile(_STRING_OR_COMMENT)
"""Strings, closed or not, and comments: brackets in them say nothing about structure."""
_PIECE = re.compile(_STRING_OR_COMMENT + r"|[()\[\]{}\n]")
_DEFINITION = re.compile(r"^[ \t]*(?:(?:async )?def \w+\(|class \w+[(:])", re.MULTILINE)
_BRACKET = re.compile(r"[()\[\]{}]")
_SEQUENCE_PATTERN = re.compile(r"[ \t]*case[ \t]+\[")
LONGEST_TARGET = 1000
"""Characters before the colon that are read as a target. Chosen: above what anybody writes; it spares the parser."""


def current_block(prefix: str) -> str:
    """Returns the prefix from its last definition on: a cut or broken start must not count, and need not be read."""
    return definitions(prefix)[-1]


def definitions(code: str) -> list[str]:
    """Returns code cut at its definitions, each to be read for itself; first comes what stands before them."""
    starts = [0, *(found.start() for found in _DEFINITION.finditer(code))]
    return [code[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)]


def bare(code: str) -> str:
    """Returns code without its strings and comments."""
    return _UNCODED.sub("", code)


def brackets(code: str) -> list[str]:
    """Returns the brackets of a piece of code, in order, without those in strings and comments."""
    return _BRACKET.findall(bare(code))


def open_quote(code: str) -> str:
    """Returns the quotes that began a string which the code does not close, or "" outside of strings."""
    last = _last_uncoded(code)
    if last is None or last["closed1"] or last["closed3"]:
        return ""
    return last["triple"] or last["quote"] or ""


def ends_in_comment(code: str) -> bool:
    """Says whether what is added behind the code belongs to a comment."""
    last = _last_uncoded(code)
    return last is not None and last[0].startswith("#")


def _last_uncoded(code: str) -> re.Match[str] | None:
    """Returns the string or comment that the code ends with."""
    last = next(iter(deque(_UNCODED.finditer(code), maxlen=1)), None)
    return None if last is None or last.end() < len(code) else last


def unmatched(found: Iterable[str]) -> tuple[Counter[str], Counter[str]]:
    """Returns, by opener, how many closers have no opener before them, and how many openers no closer behind them."""
    unopened, unclosed = Counter[str](), Counter[str]()
    for bracket in found:
        opener = OPENER_OF.get(bracket, bracket)
        if bracket == opener:
            unclosed[opener] += 1
        elif unclosed[opener]:
            unclosed[opener] -= 1
        else:
            unopened[opener] += 1
    return unopened, unclosed


def lines_inside(code: str, n_lines: int) -> list[bool]:
    """Says of each of the last lines whether it begins within brackets or a string, where indentation means nothing."""
    inside, depth = [False], 0
    for piece in _PIECE.finditer(code):
        found = piece[0]
        if found == "\n":
            inside.append(depth > 0)
        elif found in CLOSER_OF:
            depth += 1
        elif found in OPENER_OF:
            depth = max(depth - 1, 0)
        else:
            inside += [True] * found.count("\n")
    return inside[-n_lines:]


def statement_starts(code: str) -> list[int]:
    """Returns the lines that begin a statement: not blank ones, comments, or those that go on with the line above."""
    lines = code.split("\n")
    inside = lines_inside(code, len(lines))
    starts: list[int] = []
    for k, line in enumerate(lines):
        if inside[k] or not line.strip() or line.lstrip().startswith("#"):
            continue
        is_joined = k > 0 and lines[k - 1].endswith("\\")
        if not is_joined or ends_in_comment("\n".join(lines[starts[-1] if starts else 0 : k])):
            starts.append(k)
    return starts


def opens_block(line: str) -> bool:
    """Says whether an indented line must follow a line, or a statement of several."""
    return bare(line).rstrip().endswith(":")


def annotates(head: str) -> bool:
    """Says whether the colon behind a piece of a line annotates a name, an attribute or an item, and opens no block."""
    if len(head) > LONGEST_TARGET or _SEQUENCE_PATTERN.match(head):
        return False
    try:
        # Without the texts of strings, whose escapes the parser warns of.
        last = ast.parse(_UNCODED.sub("''", head).strip() + ": ...").body[-1]
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: nested too deeply
        return False
    return isinstance(last, ast.AnnAssign) and last.value is None


def width_of(line: str) -> int:
    """Returns the columns of a line's indentation."""
    expanded = line.expandtabs(TAB)
    return len(expanded) - len(expanded.lstrip(" "))


def uncoded_spans(code: str) -> list[tuple[int, int]]:
    """Returns where the strings and comments of a text that is not cut lie."""
    return [found.span() for found in _UNCODED.finditer(code)]


def closers(code: str) -> dict[int, int]:
    """Returns where the bracket is closed that opens at an offset of a text, in the order of the closers; those that
    are not closed, as while one types, are left out.
    """
    found: dict[int, int] = {}
    opened: dict[str, list[int]] = {opener: [] for opener in CLOSER_OF}
    for piece in _PIECE.finditer(code):
        if piece[0] in CLOSER_OF:
            opened[piece[0]].append(piece.start())
        elif piece[0] in OPENER_OF and opened[OPENER_OF[piece[0]]]:
            found[opened[OPENER_OF[piece[0]]].pop()] = piece.start()
    return found
