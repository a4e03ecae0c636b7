"""Slips of the keyboard: words that stand nowhere else in a document and are a key away from one that does."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from itertools import takewhile

MIN_LETTERS = 3
"""Of a word that is looked at: shorter ones resemble too much. Chosen."""
N_MEANT = 4
"""Words that one slip may have meant, the most frequent ones. Chosen; seldom there are two."""

_WORD = re.compile(r"[^\W\d]\w*")


def meant(before: str, text: str, after: str) -> list[str]:
    """Returns what may have been meant by a text, in which one word is a slip; nothing where there is none.

    The words at its ends may begin before it or end behind it: those parts stay.
    """
    left = before[len(before) - _length_of_word(reversed(before)) :]
    right = after[: _length_of_word(after)]
    whole = left + text + right
    known = Counter(_WORD.findall(before + text + after))
    found = []
    for word in _WORD.finditer(whole):
        if known[word[0]] > 1 or len(word[0]) < MIN_LETTERS:
            continue
        near = sorted((each for each in known if is_slip(word[0], each)), key=lambda each: -known[each])
        for each in near[:N_MEANT]:
            mended = whole[: word.start()] + each + whole[word.end() :]
            if mended.startswith(left) and mended.endswith(right) and len(mended) > len(left) + len(right):
                found.append(mended[len(left) : len(mended) - len(right)])
    return found


def is_slip(one: str, other: str) -> bool:
    """Says whether two words differ by one letter, left out, added or another, or by two that changed places.

    Words that differ in case alone are two names: `loan = Loan()`.
    """
    at = next((k for k, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    mine, others = one[at:], other[at:]
    is_swapped = mine[:2] == others[1::-1] and mine[2:] == others[2:]
    return one.lower() != other.lower() and (is_swapped or mine[1:] in (others, others[1:]) or mine == others[1:])


def _length_of_word(characters: Iterable[str]) -> int:
    """Returns how many characters go by before a word is over."""
    return sum(1 for _ in takewhile(lambda each: each == "_" or each.isalnum(), characters))
