"""Which changes leave Python that can still be parsed and keeps its definitions, found out in bounded time: the event
loop waits for it.
"""

from __future__ import annotations

import ast
import warnings
from collections import Counter, deque
from collections.abc import Sequence

from midspan_server.hunks import Hunk, applied

_MAX_PARSED = 200_000
"""Characters of a text that is parsed to see whether a change breaks it: measured, some 0.04 s of ordinary code and
half a second of the densest.
"""
_MAX_TRIED = 3 * _MAX_PARSED
"""Characters that are parsed to see which of several changes do. Chosen."""


def fits(text: str, changes: Sequence[Hunk], language: str) -> bool:
    """Says whether changes can be made to a text without breaking its syntax, where that is known."""
    if language != "python" or not changes or len(text) > _MAX_PARSED:
        return True
    return _parses(applied(text, changes)) or not _parses(text)


def fitting(text: str, changes: Sequence[Hunk], language: str) -> list[Hunk]:
    """Returns the changes that can be made together, from left to right; what was not tried in time is left out."""
    if fits(text, changes, language):
        return list(changes)
    kept: list[Hunk] = []
    untried, left = deque(_halves(changes)), _MAX_TRIED
    while untried and left >= len(text):
        group = untried.popleft()
        left -= len(text)
        together = sorted([*kept, *group], key=lambda change: change.start)
        if _parses(applied(text, together)):
            kept = together
        else:
            untried += _halves(group)
    return kept


def upset(text: str, changes: Sequence[Hunk], language: str) -> str | None:
    """Returns in words what changes do to the functions and classes of a text, when they take one away or define one
    twice; None where they do neither, or nobody can tell.
    """
    if language != "python" or len(text) > _MAX_PARSED:
        return None
    old, new = _definitions(text), _definitions(applied(text, changes))
    if old is None or new is None:
        return None
    if lost := next(iter(old - new), None):
        return f"the change would take away the definition of {lost}"
    twice = next((name for name, n in new.items() if n > max(old[name], 1)), None)
    return f"the change would define {twice} twice" if twice else None


def _definitions(text: str) -> Counter[str] | None:
    """Returns how often each function and class is defined, by its name within the module; None of what is unsound."""
    tree = _parsed(text)
    if tree is None:
        return None
    found = Counter[str]()
    todo: list[tuple[ast.AST, str]] = [(tree, "")]
    while todo:
        node, scope = todo.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found[scope + child.name] += 1
                todo.append((child, f"{scope}{child.name}."))
            elif not isinstance(child, ast.expr):
                todo.append((child, scope))
    return found


def _halves(group: Sequence[Hunk]) -> list[Sequence[Hunk]]:
    """Returns the halves of several changes, nothing for a single one."""
    half = len(group) // 2
    return [group[:half], group[half:]] if half else []


def _parses(text: str) -> bool:
    return _parsed(text) is not None


def _parsed(text: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings(action="ignore"):  # of old escapes in strings
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
