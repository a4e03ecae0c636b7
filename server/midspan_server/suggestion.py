"""A suggestion, and how it follows a document that moves on while the engine works."""

from __future__ import annotations

import msgspec

from midspan_server.text import Snapshot


class Suggestion(msgspec.Struct, frozen=True):
    """Offers to replace the characters from `start` to `end` of a snapshot by `text`, whose line ends are LF."""

    start: int
    end: int
    text: str
    confidence: float
    id: int = 0
    """Names the suggestion towards the client, whatever part of it is still to be typed."""
    is_whole: bool = True
    """False for the start of one that the deadline cut off."""


class Suggestions(msgspec.Struct, frozen=True):
    """Answers a request: at least one suggestion, best first, and the snapshot whose offsets they use."""

    snapshot: Snapshot
    items: tuple[Suggestion, ...]


def reanchored(suggestion: Suggestion, old: Snapshot, new: Snapshot) -> Suggestion | None:
    """Returns the rest of a suggestion after the user typed the start of it, or None if the document changed else."""
    if new.text == old.text:
        return suggestion
    n_typed = len(new.text) - len(old.text)
    at = suggestion.start
    if n_typed <= 0 or suggestion.end != at:
        return None
    typed = new.text[at : at + n_typed].replace("\r\n", "\n")
    if not suggestion.text.startswith(typed):
        return None
    if not (new.text.startswith(old.text[:at]) and new.text.endswith(old.text[at:])):
        return None
    rest = suggestion.text[len(typed) :]
    if not rest.strip():
        return None
    return msgspec.structs.replace(suggestion, start=at + n_typed, end=at + n_typed, text=rest)
