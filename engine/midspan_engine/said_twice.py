"""Whether a text says again what stands behind its gap, for any language that is written in lines."""

from __future__ import annotations

import re

_WORDLESS = re.compile(r"[\W_]*")
_WORD = re.compile(r"\w")
_TOKEN = re.compile(r"\w+|\S")
_JOINTS = frozenset(",:=.")
"""Signs that no two stand side by side of, one ending the text and one beginning the rest of the line."""

_CLOSING = frozenset(")]}\"'")


def says_again(before: str, text: str, after: str) -> bool:
    """Tells whether a text ends with the rest of its line, with a word or sign of it, or with the lines that follow.

    `before` and `after` are what stands around the text, as far as it is known; at least their line and the next lines
    count. Closing brackets and quotes alone do not: one more of them may well be wanted.
    """
    rest, _, below = after.partition("\n")
    if rest.strip():
        return _repeats_line(text, rest.strip())
    return _repeats_lines(before.rpartition("\n")[2], text, below)


def _repeats_line(text: str, rest: str) -> bool:
    own, following = _TOKEN.findall(text), _TOKEN.findall(rest)
    if own and own[-1] == following[0] and own[-1] in _JOINTS:
        return True
    if own and len(own[-1]) > 1 and following[0].startswith(own[-1]):
        return True  # it has begun to write the next word
    # where the gap ends inside a word, the end of the text's last word may be the piece behind it
    seen, n_first = text.rstrip(), len(following[0])
    if _WORD.match(rest) and any(seen.endswith(rest[:n]) for n in range(n_first, len(rest) + 1)):
        return True
    for n in range(1, min(len(own), len(following)) + 1):
        is_all, said = n == len(following), following[:n]
        if own[-n:] == said and (not _WORDLESS.fullmatch("".join(said)) or (is_all and not _CLOSING.issuperset(said))):
            return True
    return False


def _repeats_lines(line_prefix: str, text: str, below: str) -> bool:
    lines = [line.strip() for line in text.strip().split("\n")]
    following = [line.strip() for line in below.split("\n") if line.strip()]
    whole = [(line_prefix + lines[0]).strip(), *lines[1:]]
    for n in range(1, min(len(lines), len(following)) + 1):
        if whole[-n:] == following[:n] and not all(map(_WORDLESS.fullmatch, lines[-n:])):
            return True
    return False
