"""Reads pieces of Python well enough to judge what is inserted into them: brackets, open strings, indentation.

Pieces are cut anywhere, so nothing here parses; what is not Python is not judged with it.
"""

from __future__ import annotations

import re
from collections import Counter, deque

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


def current_block(prefix: str) -> str:
    """Returns the prefix from its last definition on: a cut or broken start must not count, and need not be read."""
    start = 0
    for found in _DEFINITION.finditer(prefix):
        start = found.start()
    return prefix[start:]


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


def n_unopened(found: list[str]) -> Counter[str]:
    """Returns, by opener, how many closers have none before them."""
    n_open, n_missing = Counter[str](), Counter[str]()
    for bracket in found:
        opener = OPENER_OF.get(bracket, bracket)
        n_open[opener] += 1 if bracket == opener else -1
        n_missing[opener] = max(n_missing[opener], -n_open[opener])
    return n_missing


def n_unclosed(found: list[str]) -> Counter[str]:
    """Returns, by opener, how many have no closer behind them; closers without an opener do not count."""
    n_open = Counter[str]()
    for bracket in found:
        opener = OPENER_OF.get(bracket, bracket)
        n_open[opener] = max(n_open[opener] + (1 if bracket == opener else -1), 0)
    return n_open


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


def opens_block(line: str) -> bool:
    """Says whether an indented line must follow a line."""
    return bare(line).rstrip().endswith(":")


def width_of(line: str) -> int:
    """Returns the columns of a line's indentation."""
    expanded = line.expandtabs(TAB)
    return len(expanded) - len(expanded.lstrip(" "))
