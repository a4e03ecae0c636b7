"""What the document itself, or another file beside it, would write next: programmers repeat themselves more than
anything else.

The last tokens before a place are looked up in the rest of the document and in the other files of the workspace; what
followed them there, where the match is longest, is an opinion of its own beside the model's (the idea of cache and
nearest-neighbour language models, arXiv 1612.04426 and 1911.00172, without vectors).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from midspan_engine.texts import MAX_MATCH, NOTHING, Ints, Texts

Weights = Sequence[float]
"""Shares of an opinion by length of the match, the last one for longer matches too."""


@dataclass(frozen=True, slots=True)
class Source:
    """Texts that are searched, and how much they count."""

    texts: Texts
    but: range
    """Where among them the document itself lies, which is searched by itself."""
    weights: Weights


class Repeats:
    """The tokens of one document around a gap, and texts beside it."""

    def __init__(
        self,
        before: Sequence[int],
        after: Sequence[int],
        *,
        end: int,
        breaks: frozenset[int],
        weights: Weights,
        beside: Source | None = None,
    ) -> None:
        """Takes the tokens around the gap; `end` is what ends it, `breaks` are the tokens that begin with a break."""
        self._before, self._end = list(before[-MAX_MATCH:]), end
        self._head, self._breaks = list(after[:2]), np.fromiter(breaks, dtype=np.int64)
        own = Source(Texts([before, after]), range(0), weights)
        # What is nearest has the last word.
        self._sources = [own] if beside is None else [beside, own]

    def mix(self, p_DV: torch.Tensor, lefts: Sequence[Sequence[int]]) -> torch.Tensor:
        """Returns probabilities [D, V] with the texts' opinions mixed in; changes them in place.

        `lefts` are the tokens between the text before the gap and each of the D places.
        """
        for source in self._sources:
            for p_V, left in zip(p_DV, lefts, strict=True):
                length, following = self._following(source, left)
                weight = source.weights[min(length, len(source.weights)) - 1] if length and source.weights else 0.0
                if weight:
                    p_V *= 1 - weight
                    share = p_V.new_full((len(following),), weight / len(following))
                    p_V.index_add_(0, torch.from_numpy(following), share)
        return p_DV

    def following(self, left: Sequence[int]) -> list[tuple[int, Ints]]:
        """Returns the length of the longest match of the tokens up to a place, and what followed each such match.

        Of the texts beside the document, where there are some, then of the document.
        """
        return [self._following(source, left) for source in self._sources]

    def draft(self, left: Sequence[int], n_tokens: int) -> list[int]:
        """Returns up to so many tokens that followed the last of the longest matches, up to where the gap would end."""
        matched = [(*source.texts.matches([*self._before, *left], source.but), source) for source in self._sources]
        length, ends, source = max(matched, key=lambda each: each[0])
        if not length:
            return []
        found: list[int] = self._answers(source.texts, np.arange(ends[-1], ends[-1] + n_tokens)).tolist()
        return found[: next((i for i, token in enumerate(found) if token in (self._end, NOTHING)), len(found))]

    def _following(self, source: Source, left: Sequence[int]) -> tuple[int, Ints]:
        length, ends = source.texts.matches([*self._before, *left], source.but)
        return length, self._answers(source.texts, ends)

    def _answers(self, texts: Texts, ends: Ints) -> Ints:
        """Returns the tokens behind places, the gap's end in place of what looks like the text after the gap.

        A line break is enough for that when the suffix begins with one, else two tokens in a row.
        """
        last = len(texts.ids) - 1
        answers = texts.ids[np.minimum(ends + 1, last)]
        if self._head and self._head[0] in self._breaks:
            return np.where(np.isin(answers, self._breaks), self._end, answers)
        if len(self._head) == 2:
            then = texts.ids[np.minimum(ends + 2, last)]
            return np.where((answers == self._head[0]) & (then == self._head[1]), self._end, answers)
        return answers
