"""Where the syntax of a Python file would have an editor ask: gaps at nodes of its syntax tree.

::

    rest_of_line     a line of code as below; the cursor's place in it is drawn later, character by character
    arguments        all that stands between the brackets of a call
    right_hand_side  the value of an assignment
    condition        what an if, elif, while or assert tests
    whole_line       a statement of one line, or the header line of a block, behind its indentation
    lines            statements of one block that take 2 to 6 lines together, behind the indentation of the first

Docstrings are no gaps. Every kind but the last keeps to one line.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator

Gap = tuple[int, int]
"""Start and end of a gap, in characters."""

MIN_LINES, MAX_LINES = 2, 6

_COMPOUND = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.If, ast.For, ast.AsyncFor, ast.While),
    *(ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match),
)


def parse(source: str) -> ast.Module | None:
    """Returns the syntax tree of a file; None when it is no valid Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's strings
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def gaps_by_kind(source: str) -> dict[str, list[Gap]]:
    """Returns all gaps of a file by kind; none of a file that does not parse."""
    found: dict[str, list[Gap]] = {}
    tree = parse(source)
    if tree is None or "\r" in source or "\f" in source:  # line numbers of `ast` count those as line ends too
        return found
    places = _Places(source)
    for node in ast.walk(tree):
        for kind, (start, end) in _gaps_at(node, places):
            if source[start:end].strip():
                found.setdefault(kind, []).append((start, end))
    return found


class _Places:
    """From the lines and UTF-8 columns of `ast` to characters."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._lines = source.split("\n")
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line) + 1)

    def start(self, node: ast.stmt | ast.expr) -> int:
        return self._offset(node.lineno, node.col_offset)

    def end(self, node: ast.stmt | ast.expr) -> int:
        assert node.end_lineno is not None, "a parsed node has an end"
        assert node.end_col_offset is not None, "a parsed node has an end"
        return self._offset(node.end_lineno, node.end_col_offset)

    def line_end(self, lineno: int) -> int:
        """Returns the end of a line without its trailing blanks."""
        return self._starts[lineno - 1] + len(self._lines[lineno - 1].rstrip())

    def is_first_in_line(self, node: ast.stmt) -> bool:
        return not self.source[self._starts[node.lineno - 1] : self.start(node)].strip()

    def is_last_in_line(self, node: ast.stmt) -> bool:
        """Says whether nothing but a comment follows a statement."""
        rest = self.source[self.end(node) : self.line_end(node.end_lineno or 0)].lstrip()
        return not rest or rest.startswith("#")

    def _offset(self, lineno: int, column: int) -> int:
        line = self._lines[lineno - 1]
        return self._starts[lineno - 1] + (column if line.isascii() else len(line.encode()[:column].decode()))


def _gaps_at(node: ast.AST, places: _Places) -> Iterator[tuple[str, Gap]]:
    for block in (getattr(node, field, None) for field in ("body", "orelse", "finalbody")):
        if isinstance(block, list):
            yield from (("lines", gap) for gap in _runs(block, places))
    if isinstance(node, ast.Call) and (node.args or node.keywords) and node.lineno == node.end_lineno:
        yield "arguments", (places.source.index("(", places.end(node.func)) + 1, places.end(node) - 1)
    elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value and node.lineno == node.end_lineno:
        equals = places.source.rindex("=", places.start(node), places.start(node.value))
        value = places.source[equals + 1 : places.end(node)]
        yield "right_hand_side", (places.end(node) - len(value.lstrip()), places.end(node))
    elif isinstance(node, ast.If | ast.While | ast.Assert) and node.test.lineno == node.test.end_lineno:
        yield "condition", _with_brackets(places.start(node.test), places.end(node.test), places.source)
    if isinstance(node, ast.stmt) and (gap := _whole_line(node, places)):
        yield "whole_line", gap
        yield "rest_of_line", gap


def _with_brackets(start: int, end: int, source: str) -> Gap:
    """Returns the span of an expression with the brackets around it, which its node leaves out."""
    while source[start - 1] == "(" and source[end : end + 1] == ")":
        start, end = start - 1, end + 1
    return start, end


def _whole_line(node: ast.stmt, places: _Places) -> Gap | None:
    if _is_docstring(node) or not places.is_first_in_line(node):
        return None
    gap = places.start(node), places.line_end(node.lineno)
    if isinstance(node, _COMPOUND):
        is_header = places.source[slice(*gap)].endswith(":")
        return gap if is_header else None
    return gap if node.lineno == node.end_lineno and places.is_last_in_line(node) else None


def _runs(block: list[ast.stmt], places: _Places) -> Iterator[Gap]:
    for index, first in enumerate(block):
        if not isinstance(first, ast.stmt) or _is_docstring(first) or not places.is_first_in_line(first):
            continue
        if getattr(first, "decorator_list", ()):  # its node starts below the decorators
            continue
        for last in block[index:]:
            n_lines = (last.end_lineno or 0) - first.lineno + 1
            if n_lines > MAX_LINES:
                break
            if n_lines >= MIN_LINES and places.is_last_in_line(last):
                yield places.start(first), places.line_end(last.end_lineno or 0)


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
