"""A suggestion never repeats what follows the cursor.

The suffix is pinned on the canvas, so such a candidate should not exist: this filter counts failures of the engine,
which is why it drops and does not cut.
"""

from __future__ import annotations

import re

from midspan_server.context import Context
from midspan_server.filters.verdict import Dropped

_WORDLESS = re.compile(r"[\W_]*")
_WORD = re.compile(r"\w")
_TOKEN = re.compile(r"\w+|\S")
_JOINTS = frozenset(",:=.")
"""Signs that no two stand side by side of, one ending the suggestion and one beginning the rest of the line."""

_CLOSING = frozenset(")]}\"'")

_REPEATS = Dropped("the suggestion repeats what follows the cursor")


def overlap(text: str, context: Context) -> str | Dropped:
    """Drops a text that ends with the rest of its line, with a word or sign of it, or with the lines that follow.

    Closing brackets and quotes alone are left to `balance` and `quotes`: one more of them may well be wanted.
    """
    rest = context.line_suffix.strip()
    if rest:
        return _REPEATS if _repeats_line(text, rest) else text
    return _REPEATS if _repeats_lines(text, context) else text


def _repeats_line(text: str, rest: str) -> bool:
    own, following = _TOKEN.findall(text), _TOKEN.findall(rest)
    if own and own[-1] == following[0] and own[-1] in _JOINTS:
        return True
    if own and len(own[-1]) > 1 and following[0].startswith(own[-1]):
        return True  # it has begun to write the next word
    # where the cursor stands inside a word, the end of the text's last word may be the piece behind it
    seen, n_first = text.rstrip(), len(following[0])
    if _WORD.match(rest) and any(seen.endswith(rest[:n]) for n in range(n_first, len(rest) + 1)):
        return True
    for n in range(1, min(len(own), len(following)) + 1):
        is_all, said = n == len(following), following[:n]
        if own[-n:] == said and (not _WORDLESS.fullmatch("".join(said)) or (is_all and not _CLOSING.issuperset(said))):
            return True
    return False


def _repeats_lines(text: str, context: Context) -> bool:
    lines = [line.strip() for line in text.strip().split("\n")]
    following = [line.strip() for line in context.suffix.split("\n")[1:] if line.strip()]
    whole = [(context.line_prefix + lines[0]).strip(), *lines[1:]]
    for n in range(1, min(len(lines), len(following)) + 1):
        if whole[-n:] == following[:n] and not all(map(_WORDLESS.fullmatch, lines[-n:])):
            return True
    return False
