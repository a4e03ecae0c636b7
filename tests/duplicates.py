"""Finds what an insertion says twice, by other means than the filters: the parser, and plain comparison of lines."""

from __future__ import annotations

import ast
import re
import warnings

_WORD = re.compile(r"\w")


def duplicated(before: str, inserted: str, after: str) -> str | None:
    """Returns the piece of the insertion that stands after it too, None where there is none.

    A tail counts as said twice if it is what follows and only without it the whole is Python, or if it holds a whole
    word and is what the rest of the line begins with, or is the lines that follow.
    """
    rest = after.partition("\n")[0].strip()
    for n in range(len(rest), 0, -1):
        is_whole = n == len(rest) or not (_WORD.match(rest[n - 1]) and _WORD.match(rest[n]))
        seen = inserted.rstrip()
        is_word = _WORD.search(rest[:n]) and not (_WORD.match(rest[0]) and _WORD.match(seen[-n - 1 : -n]))
        if is_whole and is_word and seen.endswith(rest[:n]):
            return rest[:n]
    lines = [line.strip() for line in inserted.strip().split("\n")]
    following = [line.strip() for line in after.split("\n")[1:] if line.strip()]
    for n in range(1, len(lines)):
        if lines[-n:] == following[:n] and _WORD.search("".join(lines[-n:])) and not rest:
            return "\n".join(lines[-n:])
    if not _is_python(before + inserted + after):
        for n in range(1, min(len(inserted), len(after)) + 1):
            if inserted.endswith(after[:n]) and _is_python(before + inserted[:-n] + after):
                return after[:n]
    return None


def _is_python(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes and comparisons in code that is not ours
            ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True
