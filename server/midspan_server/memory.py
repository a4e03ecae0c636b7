"""What was offered of late, so that typing along a suggestion, going back in it, or accepting a part needs no engine.

An offer is found again by the text around the cursor, not by versions or offsets: that is all the engine has seen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from midspan_server.context import Context
from midspan_server.suggestion import Suggestion

N_KEPT = 16
"""Offers kept of a document: each holds at most 20 KB of text around the cursor. Chosen."""

_CLOSERS = ")]}\"'"


class _Offer(msgspec.Struct, frozen=True):
    prefix: str
    suffix: str
    is_invoked: bool
    texts: tuple[tuple[int, str, float], ...]
    """Id, text behind the prefix, and confidence of each suggestion."""


class Memory:
    """Keeps the last offers of each document."""

    def __init__(self) -> None:
        self._offers: dict[str, deque[_Offer]] = {}

    def keep(self, document: str, context: Context, suggestions: Iterable[Suggestion]) -> None:
        """Keeps what was offered in a context. What the deadline cut off is left out: asked again, it comes whole."""
        n_selected = len(context.selected)
        texts = tuple((each.id, each.text[n_selected:], each.confidence) for each in suggestions if each.is_whole)
        if not texts:
            return
        offer = _Offer(context.prefix, context.suffix, context.trigger == "invoked", texts)
        self._offers.setdefault(document, deque(maxlen=N_KEPT)).appendleft(offer)

    def recall(self, document: str, context: Context) -> tuple[Suggestion, ...]:
        """Returns the rest of what was offered if what was typed since agrees with it; a request by hand gets only
        what was offered to one.
        """
        for offer in self._offers.get(document, ()):
            if context.trigger == "invoked" and not offer.is_invoked:
                continue
            if found := tuple(_rests(offer, context)):
                return found
        return ()

    def forget(self, document: str) -> None:
        """Drops the offers of a document."""
        self._offers.pop(document, None)

    def clear(self) -> None:
        """Drops all offers."""
        self._offers.clear()


def _rests(offer: _Offer, context: Context) -> Iterable[Suggestion]:
    closer = _closer(offer.suffix, context)
    if closer is None or not context.prefix.startswith(offer.prefix):
        return
    typed = context.prefix[len(offer.prefix) :]
    for which, text, confidence in offer.texts:
        if not text.startswith(typed):
            continue
        rest = text[len(typed) :]
        if not rest.endswith(closer):
            continue
        rest = rest.removesuffix(closer)
        if rest.strip():
            yield Suggestion(context.start, context.end, context.selected + rest, confidence, which)


def _closer(offered: str, context: Context) -> str | None:
    """Returns the bracket or quote that the editor has closed by itself since, "" for none, None for another suffix."""
    if context.suffix == offered:
        return ""
    closer, rest = context.suffix[:1], context.suffix[1:]
    is_same = offered.startswith(rest) if context.suffix_is_cut else offered == rest
    return closer if closer and closer in _CLOSERS and is_same else None
