"""Where the user has edited of late, in any document: what was just changed there often goes on here."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping

from midspan_server.similar import lines_of
from midspan_server.text import Snapshot

N_EDITS = 8
"""Places remembered, as many as Copilot's."""
N_AROUND = 2
"""Lines shown on both sides of a place. Edits closer than that are one place. Chosen."""


class RecentPlaces:
    """Remembers the last places."""

    def __init__(self) -> None:
        self._places: deque[tuple[str, int]] = deque(maxlen=N_EDITS)

    def note(self, uri: str, line: int) -> None:
        """Notes an edit of a line, counted from 0."""
        near = [place for place in self._places if place[0] == uri and abs(place[1] - line) <= N_AROUND]
        for place in near:
            self._places.remove(place)
        self._places.append((uri, line))

    def recent(self, others: Mapping[str, Snapshot], budget: int, deadline_s: float) -> str:
        """Returns the lines around the places in these documents, the newest one last, within so many characters.

        What has been found at the deadline, a time of `time.perf_counter`, counts.
        """
        text = ""
        for uri, line in reversed(self._places):
            if time.perf_counter() > deadline_s:
                break
            if (snapshot := others.get(uri)) is not None:
                window = lines_of(snapshot, line - N_AROUND, line + N_AROUND + 1)
                if window.strip() and len(window) + len(text) <= budget:
                    text = window + text
        return text
