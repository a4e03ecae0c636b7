"""Files that clients have lent, as the worker has yet to tell the engine of them; for any thread."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from midspan_engine.protocol import Lend


class LentFiles:
    """Keeps the newest text of every file, and which of them the engine does not know yet."""

    def __init__(self) -> None:
        self._lent: dict[tuple[str, str], Lend] = {}
        self._news: dict[tuple[str, str], Lend] = {}
        """In the order in which they came; a newer text of a file takes the place of the older one."""
        self._lock = threading.Lock()

    @property
    def n_news(self) -> int:
        """The number of files that the engine does not know yet."""
        return len(self._news)

    def put(self, lend: Lend) -> None:
        """Takes a text, or an empty one that takes a file back."""
        which = (lend.workspace, lend.file)
        with self._lock:
            if lend.text:
                self._lent[which] = lend
            else:
                self._lent.pop(which, None)
            self._news.pop(which, None)
            self._news[which] = lend

    def close(self, workspaces: Iterable[str]) -> None:
        """Takes back all files of workspaces."""
        closed = set(workspaces)
        with self._lock:
            files = [which for which in {**self._lent, **self._news} if which[0] in closed]
        for workspace, file in files:
            self.put(Lend(workspace=workspace, file=file, text=""))

    def withdrawn(self) -> list[Lend]:
        """Returns what is to be taken out, which nobody may see any more; it counts as done."""
        with self._lock:
            gone = [lend for lend in self._news.values() if not lend.text]
            for lend in gone:
                del self._news[lend.workspace, lend.file]
        return gone

    def next(self) -> Lend | None:
        """Returns the text to be taken in next, which counts as done; None when there is none."""
        with self._lock:
            which = next((which for which, lend in self._news.items() if lend.text), None)
            return None if which is None else self._news.pop(which)

    def start_over(self) -> None:
        """Makes everything news again, for an engine that knows nothing."""
        with self._lock:
            self._news = dict(self._lent)
