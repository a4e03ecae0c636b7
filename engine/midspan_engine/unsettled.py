"""Canvases whose request was withdrawn before they settled: most often because its user typed the next character.

Where what was typed since agrees with the draft, it only makes the text longer that the gap must begin with; what the
canvas has settled by then stays, and denoising goes on.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from midspan_engine.denoise import Settling
from midspan_engine.prompt import Prompt
from midspan_engine.protocol import Fill

N_KEPT = 16
"""Canvases kept, one a document, each some hundred kilobytes at most. Chosen: more than people type in at once."""
_LEAST_FREE = 0.5
"""Share of a gap that typed text must leave free, or the answer would end too early. Chosen."""


@dataclass(frozen=True, slots=True)
class _Left:
    request: Fill
    prompt: Prompt
    settling: Settling


class Unsettled:
    """Keeps the last canvas that each document was left with."""

    def __init__(self, spellings: Sequence[bytes]) -> None:
        """Takes the bytes of each token."""
        self._spellings = spellings
        self._left: OrderedDict[str, _Left] = OrderedDict()

    def keep(self, request: Fill, prompt: Prompt, settling: Settling) -> None:
        """Keeps the canvas of a withdrawn request, in the place of the one before of its document."""
        self._left.pop(request.document, None)
        self._left[request.document] = _Left(request, prompt, settling)
        if len(self._left) > N_KEPT:
            self._left.popitem(last=False)

    def take(self, request: Fill) -> tuple[Prompt, Settling] | None:
        """Returns the canvas that a request goes on from, and the prompt that requires what was typed since.

        None where there is no such canvas or the request is for something else; what is kept of the document is
        given up in either case.
        """
        left = self._left.pop(request.document, None)
        if left is None or not (typed := _typed_since(left.request, request)):
            return None
        required = left.prompt.required[0] + typed
        n_gap = len(left.prompt.canvas.gaps[0])
        draft = [self._spellings[token] for token in left.settling.order.draft_BG[0, :n_gap].tolist()]
        if not b"".join(draft[: int(n_gap * (1 - _LEAST_FREE))]).startswith(required):
            return None
        return replace(left.prompt, required=(required, *left.prompt.required[1:])), left.settling

    def forget(self, document: str) -> None:
        """Drops the canvas of a document."""
        self._left.pop(document, None)

    def clear(self) -> None:
        """Drops all canvases."""
        self._left.clear()


def _typed_since(old: Fill, new: Fill) -> bytes:
    """Returns what was typed at the first gap between two requests; empty when they differ in anything else.

    A bracket that the editor has closed by itself changes what follows, and with it the canvas. Alternatives are asked
    for by hand, nobody types through them.
    """
    alike = msgspec.structs.replace(
        new,
        id=old.id,
        parts=old.parts,
        deadline_ms=old.deadline_ms,
        min_confidence=old.min_confidence,
        priority=old.priority,
        watch=old.watch,
    )
    if old != alike or old.parts[1:] != new.parts[1:] or not new.parts[0].startswith(old.parts[0]):
        return b""
    return b"" if new.n_candidates > 1 or new.held else new.parts[0][len(old.parts[0]) :].encode()
