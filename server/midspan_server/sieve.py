"""From candidates of the engine to suggestions: each is filtered, what comes twice is offered once."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable

import msgspec

from midspan_engine.protocol import Candidate, Filled
from midspan_server.context import Context
from midspan_server.filters import Dropped, sifted
from midspan_server.suggestion import Suggestion


class Sieve:
    """Numbers the suggestions of one client, and counts by reason what it drops."""

    def __init__(self, dropped: Counter[str]) -> None:
        self._dropped = dropped
        self._ids = itertools.count(1)

    def kept(self, context: Context, candidates: Iterable[Candidate]) -> tuple[list[Suggestion], str]:
        """Returns the different suggestions that pass the filters, and why the best of the others did not."""
        kept, reasons = _sifted(context, candidates)
        self._dropped.update(reasons)
        suggestions = [
            Suggestion(
                context.start, context.end, context.selected + text, each.confidence, next(self._ids), each.complete
            )
            for text, each in kept.items()
        ]
        return suggestions, reasons[0] if reasons else ""


def passing(filled: Filled, context: Context) -> Filled:
    """Returns an answer with the different candidates that pass the filters, or the reason why none of them does."""
    kept, reasons = _sifted(context, filled.candidates)
    candidates = tuple(msgspec.structs.replace(each, gaps=(text,)) for text, each in kept.items())
    silence = filled.silence if kept or not reasons else reasons[0]
    return msgspec.structs.replace(filled, candidates=candidates, silence=silence)


def _sifted(context: Context, candidates: Iterable[Candidate]) -> tuple[dict[str, Candidate], list[str]]:
    """Returns what passes the filters, by the text that is left of it, and why the others do not."""
    kept: dict[str, Candidate] = {}
    reasons: list[str] = []
    for candidate in candidates:
        text = sifted(candidate.text, context)
        if isinstance(text, Dropped):
            reasons.append(text.reason)
        else:
            kept.setdefault(text, candidate)
    return kept, reasons
