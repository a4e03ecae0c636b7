"""What clients had counted when they left the host: what a user has accepted this week is not over with a window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from midspan_engine.protocol import ClientStatus


class GoneClients:
    """Keeps the last counts of every client that has left, as long as the host lives."""

    def __init__(self) -> None:
        self._left: dict[tuple[str, int], dict[str, int]] = {}

    def add(self, client: ClientStatus) -> None:
        """Takes a client that leaves. One that left before and came back has gone on counting: the newest counts."""
        if client.report.counts:
            self._left[client.name, client.pid] = client.report.counts

    def counts(self, present: Iterable[ClientStatus]) -> dict[str, dict[str, int]]:
        """Returns the sums by name, without those of clients that are there again."""
        here = {(client.name, client.pid) for client in present}
        sums: dict[str, Counter[str]] = {}
        for (name, pid), counts in self._left.items():
            if (name, pid) not in here:
                sums.setdefault(name, Counter()).update(counts)
        return {name: dict(counted) for name, counted in sums.items()}
