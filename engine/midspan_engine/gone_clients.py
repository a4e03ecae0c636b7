"""What clients had counted when they left the host: what a user has accepted this week is not over with a window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from midspan_engine.protocol import ClientStatus

_Key = tuple[str, int, str]
"""Name, process and counter."""


class GoneClients:
    """Keeps the last counts of every client that has left, as long as the host lives."""

    def __init__(self) -> None:
        self._left: dict[_Key, dict[str, int]] = {}

    def add(self, client: ClientStatus) -> None:
        """Takes a client that leaves. One that left before and came back has gone on counting: the newest counts."""
        if client.report.counts:
            self._left[_key(client)] = client.report.counts

    def counts(self, present: Iterable[ClientStatus]) -> dict[str, dict[str, int]]:
        """Returns the sums by name, without those of clients that are there again."""
        here = {_key(client) for client in present}
        sums: dict[str, Counter[str]] = {}
        for key, counts in self._left.items():
            if key not in here:
                sums.setdefault(key[0], Counter()).update(counts)
        return {name: dict(counted) for name, counted in sums.items()}


def _key(client: ClientStatus) -> _Key:
    # A process may hold several clients, and a new process may get the number of an old one.
    return client.name, client.pid, client.report.counter
