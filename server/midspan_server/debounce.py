"""How long a request waits for the next key, so that a burst of typing asks the engine once and not with every key.

Editors wait too before they ask; that counts. Nothing waits that would not be spared: after a pause, or where keys come
so slowly that the wait would be longer than `MAX_S`, the engine is asked at once.
"""

from __future__ import annotations

CLIENT_WAITS_S = {"Visual Studio Code": 0.05, "Neovim": 0.2}
"""What editors wait after a key before they ask, by the start of the names they go by (read in their sources)."""
INTERVALS = 1.25
"""Typing intervals after which the next key is late. Chosen."""
MAX_S = 0.15
"""The longest wait of ours: it is felt from about here on. Chosen."""
PAUSE_S = 1.0
"""A key after so long begins a new burst. Chosen."""
_WEIGHT = 0.3
"""Of the newest interval in the mean. Chosen: some five keys of memory."""


class Debounce:
    """Follows the keys of one client. Times are in seconds, of any one clock."""

    def __init__(self, client: str = "") -> None:
        self._client_s = next((wait for name, wait in CLIENT_WAITS_S.items() if client.startswith(name)), 0.0)
        self._last_s: float | None = None
        self._interval_s: float | None = None

    def note_key(self, now_s: float) -> None:
        """Notes a change of a document."""
        if self._last_s is not None and (interval := now_s - self._last_s) < PAUSE_S:
            known = self._interval_s
            self._interval_s = interval if known is None else known + _WEIGHT * (interval - known)
        else:
            self._interval_s = None
        self._last_s = now_s

    def wait_s(self, now_s: float) -> float:
        """Returns how long a request that comes now is to be held back for the next key."""
        if self._interval_s is None or self._last_s is None:
            return 0.0
        since_key = max(self._client_s, now_s - self._last_s)
        wait = INTERVALS * self._interval_s - since_key
        return wait if 0 < wait <= MAX_S else 0.0
