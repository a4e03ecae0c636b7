"""Code of other open files, shown to the engine before the file itself: imported, similar, just edited.

What changes least comes first, and what was gathered for a place stays the same while one types there, so that the
engine's cached prefix stays valid from key to key.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from midspan_server.gate import unread
from midspan_server.imported import imported
from midspan_server.privacy import first_match
from midspan_server.recent_places import RecentPlaces
from midspan_server.settings import Settings
from midspan_server.similar import BLOCK_LINES, similar
from midspan_server.text import TextDocument

TIME_S = 0.003
"""What each way of gathering may take; the loop that answers keys stands still for so long. Chosen."""


class Neighbours:
    """Gathers what belongs to a place and keeps it for as long as it holds."""

    def __init__(self) -> None:
        self.places = RecentPlaces()
        self._kept: dict[str, tuple[object, str]] = {}

    def gather(
        self, document: TextDocument, line: int, documents: Mapping[str, TextDocument], settings: Settings
    ) -> str:
        """Returns what is shown before a document, within `settings.neighbour_characters`."""
        others = {uri: other for uri, other in documents.items() if _may_be_read(other, document, settings)}
        # Texts, not versions: these begin anew with every opening, and clients change documents without a new one.
        texts = tuple((uri, other.snapshot.text) for uri, other in others.items())
        key = (line // BLOCK_LINES, settings.neighbour_characters, texts)
        kept = self._kept.get(document.uri)
        if kept is None or kept[0] != key:
            kept = self._kept[document.uri] = (key, self._gathered(document, line, others, settings))
        return kept[1]

    def forget(self, uri: str) -> None:
        """Drops what is kept for a document."""
        self._kept.pop(uri, None)

    def _gathered(
        self, document: TextDocument, line: int, others: Mapping[str, TextDocument], settings: Settings
    ) -> str:
        budget = settings.neighbour_characters
        texts = {other.paths[0] if other.paths else uri: other.snapshot.text for uri, other in others.items()}
        heads = imported(document.snapshot.text, texts, budget // 4, time.perf_counter() + TIME_S)
        snapshots = {uri: other.snapshot for uri, other in others.items()}
        changed = self.places.recent(snapshots, budget // 4, time.perf_counter() + TIME_S)
        room = budget - len(heads) - len(changed)
        alike = similar(document.snapshot, line, list(snapshots.values()), room, time.perf_counter() + TIME_S)
        return heads + alike + changed


def _may_be_read(other: TextDocument, document: TextDocument, settings: Settings) -> bool:
    """Says whether a document is another file in the same language that the user lets be read."""
    # The cells of one notebook go by one path; they are read as one file already.
    if other is document or other.paths == document.paths or other.language != document.language:
        return False
    is_private = any(first_match(path, settings.context_excluded_globs) for path in other.paths)
    return not is_private and unread(other) is None
