"""What the document itself would write next: programmers repeat themselves more than anything else.

The last tokens before a place are looked up in the rest of the document; what followed them there, where the match is
longest, is an opinion of its own beside the model's (the idea of cache and nearest-neighbour language models, arXiv
1612.04426 and 1911.00172, without vectors).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

MAX_MATCH = 16
"""Tokens compared; a longer match says nothing more."""

Ints = npt.NDArray[np.int64]


class Repeats:
    """The tokens of one document around a gap."""

    def __init__(
        self, before: Sequence[int], after: Sequence[int], *, end: int, breaks: frozenset[int], weights: Sequence[float]
    ) -> None:
        """Takes the tokens around the gap; `end` is the token that ends it, `breaks` are those that begin with a break.

        `weights` are the shares of this opinion by length of the match, the last one for longer matches too.
        """
        self._weights, self._before, self._end = weights, list(before[-MAX_MATCH:]), end
        # no match runs across the gap
        self._ids: Ints = np.array([*before, -1, *after], dtype=np.int64)
        self._answers = self._with_ends(list(after[:2]), end, breaks)
        self._places = np.flatnonzero(self._answers[1:] >= 0)
        """Where a match may end: something follows."""

    def _with_ends(self, head: list[int], end: int, breaks: frozenset[int]) -> Ints:
        """Returns the tokens with `end` in place of what looks like the text after the gap.

        A line break is enough for that when the suffix begins with one, else two tokens in a row.
        """
        answers = self._ids.copy()
        if head and head[0] in breaks:
            answers[np.isin(answers, list(breaks))] = end
        elif len(head) == 2:
            answers[:-1][(self._ids[:-1] == head[0]) & (self._ids[1:] == head[1])] = end
        return answers

    def mix(self, p_DV: torch.Tensor, lefts: Sequence[Sequence[int]]) -> torch.Tensor:
        """Returns probabilities [D, V] with the document's opinion mixed in; changes them in place.

        `lefts` are the tokens between the text before the gap and each of the D places.
        """
        for p_V, left in zip(p_DV, lefts, strict=True):
            length, following = self.following(left)
            if length:
                weight = self._weights[min(length, len(self._weights)) - 1]
                p_V *= 1 - weight
                p_V.index_add_(0, torch.from_numpy(following), p_V.new_full((len(following),), weight / len(following)))
        return p_DV

    def following(self, left: Sequence[int]) -> tuple[int, Ints]:
        """Returns the length of the longest match of the tokens up to a place, and what followed each such match."""
        length, ends = self._matches(left)
        return length, self._answers[ends + 1]

    def draft(self, left: Sequence[int], n_tokens: int) -> list[int]:
        """Returns up to so many tokens that followed the last of the longest matches, up to where the gap would end."""
        _, ends = self._matches(left)
        if not len(ends):
            return []
        found: list[int] = self._answers[ends[-1] + 1 : ends[-1] + 1 + n_tokens].tolist()
        return found[: next((i for i, token in enumerate(found) if token in (self._end, -1)), len(found))]

    def _matches(self, left: Sequence[int]) -> tuple[int, Ints]:
        """Returns the length of the longest matches and the places of their last tokens; none when nothing matches."""
        ends, length = self._places, 0
        for token in [*self._before, *left][: -MAX_MATCH - 1 : -1]:
            closer = ends[ends >= length]
            closer = closer[self._ids[closer - length] == token]
            if not len(closer):
                break
            ends, length = closer, length + 1
        return length, ends if length else ends[:0]
