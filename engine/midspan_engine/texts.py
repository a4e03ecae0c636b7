"""Tokens of one or more texts in a row, and where in them a place reads like the end of another text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

MAX_MATCH = 16
"""Tokens compared; a longer match says nothing more."""
NOTHING = -1
"""Stands where a text ends: no match runs across it."""

Ints = npt.NDArray[np.int64]


class Texts:
    """Token ids of texts, NOTHING behind each of them; `is_indexed` sorts them once, for many searches."""

    def __init__(self, texts: Sequence[Sequence[int] | Ints], *, is_indexed: bool = False) -> None:
        gap = np.full(1, NOTHING, dtype=np.int64)
        parts = [part for text in texts for part in (np.asarray(text, dtype=np.int64), gap)]
        self.ids: Ints = np.concatenate([*parts, gap])
        self._order = np.argsort(self.ids, kind="stable") if is_indexed else None
        self._sorted = self.ids[self._order] if self._order is not None else None

    def matches(self, left: Sequence[int], but: range = range(0)) -> tuple[int, Ints]:
        """Returns the length of the longest matches of the end of `left`, and the places of their last tokens.

        (0, nothing) when its last token is nowhere. Places in `but`, and where no token follows, do not count.
        """
        if not left:
            return 0, self.ids[:0]
        ends = self._places(left[-1])
        ends = ends[(self.ids[ends + 1] != NOTHING) & ((ends < but.start) | (ends >= but.stop))]
        length = min(1, len(ends))
        for token in left[-2 : -MAX_MATCH - 1 : -1] if length else ():
            closer = ends[ends >= length]
            closer = closer[self.ids[closer - length] == token]
            if not len(closer):
                break
            ends, length = closer, length + 1
        return length, ends

    def _places(self, token: int) -> Ints:
        if self._order is None or self._sorted is None:
            return np.flatnonzero(self.ids == token)
        first, last = np.searchsorted(self._sorted, [token, token + 1])
        return self._order[first:last]
