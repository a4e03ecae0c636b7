"""Drafts as they are watched: what a slot of the canvas is to a reader, and a notification for every pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import msgspec

from midspan_engine.protocol import Draft, Slot

WATCH = "midspan/watch"
"""A request of the client: {enabled}, answered with the same."""
DRAFT = "midspan/draft"

Kind = Literal["pin", "accepted", "sure", "open", "unsure", "blank"]
"""Of the slots that are not accepted yet, how sure the model is of its draft."""
_SURE_NATS = 0.1
"""Below this a slot is all but certain: exp(-0.1) puts 90 % on one token."""
_UNSURE_NATS = 2.0
"""Above this at least seven tokens are in play (exp(2) = 7.4)."""

OnDraft = Callable[[Draft], None]


class WatchParams(msgspec.Struct, frozen=True):
    """Says whether the client wants to see drafts."""

    enabled: bool


class ShownSlot(msgspec.Struct, frozen=True):
    """One slot of the canvas."""

    text: str
    kind: Kind
    entropy: float
    """Nats."""


class ShownDraft(msgspec.Struct, frozen=True, rename="camel"):
    """The body of a `midspan/draft` notification."""

    uri: str
    step: int
    is_last: bool
    slots: tuple[ShownSlot, ...]


class Watch:
    """Shows the drafts of whatever runs; off until the client asks for it."""

    def __init__(self, send: Callable[[ShownDraft], None]) -> None:
        self.is_on = False
        self._send = send
        self._last: dict[object, tuple[str, Draft]] = {}
        """The last draft of whatever runs and has been shown, with its document."""

    def switch(self, is_on: bool) -> None:
        """Shows drafts from now on, or ends all that are shown: after it nothing more comes of what still runs."""
        self.is_on = is_on
        if not is_on:
            for request in list(self._last):
                self._end(request)

    @contextmanager
    def follow(self, uri: str) -> Iterator[OnDraft | None]:
        """Yields who shows the drafts of one request, None while nobody watches.

        However the request ends, its last draft is shown once more as the last one.
        """
        if not self.is_on:
            yield None
            return
        request = object()

        def show(draft: Draft) -> None:
            if not self.is_on:
                return
            self._last[request] = (uri, draft)
            self._send(_shown(uri, draft, is_last=False))

        try:
            yield show
        finally:
            self._end(request)

    def _end(self, request: object) -> None:
        if (last := self._last.pop(request, None)) is not None:
            self._send(_shown(*last, is_last=True))


def kind_of(slot: Slot) -> Kind:
    """Returns what a slot is to whoever looks at the canvas."""
    if slot.pinned:
        return "pin"
    if not slot.text:
        return "blank"
    if slot.accepted:
        return "accepted"
    if slot.entropy < _SURE_NATS:
        return "sure"
    return "open" if slot.entropy < _UNSURE_NATS else "unsure"


def _shown(uri: str, draft: Draft, *, is_last: bool) -> ShownDraft:
    """Returns a draft in the words of the notification."""
    slots = tuple(ShownSlot(slot.text, kind_of(slot), round(slot.entropy, 3)) for slot in draft.slots)
    return ShownDraft(uri, draft.step, is_last, slots)
