"""What clients report of suggestions, counted on this machine and sent nowhere.

The words are those of Copilot's server: `didShowCompletion`, `didPartiallyAcceptCompletion`; all of a suggestion is
accepted by the command that comes with it. Whether it was kept is seen in the document some time later.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from midspan_server.suggestion import Suggestion
from midspan_server.text import TextDocument

DID_SHOW = "textDocument/didShowCompletion"
DID_ACCEPT_PART = "textDocument/didPartiallyAcceptCompletion"
ACCEPTED = "midspan.accepted"
"""The command of every item; its one argument is the suggestion's id."""

KEPT_AFTER_S = 30.0
"""What is still there then is counted as kept: the longer of the two spans that Copilot looks after."""
N_REMEMBERED = 64
"""Suggestions that a report may still name; clients report within seconds. Chosen."""


class Command(msgspec.Struct, frozen=True):
    """The command of an item, of which only the suggestion's id is looked at."""

    arguments: tuple[int, ...]


class Item(msgspec.Struct, frozen=True, rename="camel"):
    """An item as the client sends it back."""

    command: Command
    insert_text: str


class ShownReport(msgspec.Struct, frozen=True):
    """The parameters of `didShowCompletion`."""

    item: Item


class PartReport(msgspec.Struct, frozen=True, rename="camel"):
    """The parameters of `didPartiallyAcceptCompletion`."""

    item: Item
    accepted_length: int
    """UTF-16 units from the start of the item's text to the end of what was accepted."""


class _Offered:
    def __init__(self, document: str, text: str) -> None:
        self.document, self.text = document, text
        self.stages: set[str] = set()


class Feedback:
    """Counts what became of suggestions; it holds their text only as long as it has to look for it."""

    def __init__(self, documents: Mapping[str, TextDocument], counts: Counter[str]) -> None:
        self._documents, self._counts = documents, counts
        self._offered: dict[int, _Offered] = {}

    def offered(self, document: str, suggestions: Iterable[Suggestion]) -> None:
        """Remembers what a client may report about."""
        for each in suggestions:
            self._offered.setdefault(each.id, _Offered(document, each.text))
        while len(self._offered) > N_REMEMBERED:
            del self._offered[next(iter(self._offered))]

    def shown(self, report: ShownReport) -> None:
        """Counts a suggestion that the user has seen, once however often it is drawn."""
        self._count(report.item.command.arguments, "shown")

    def accepted_part(self, report: PartReport) -> None:
        """Counts a suggestion of which the user has taken the start, or all of it bit by bit."""
        which = report.item.command.arguments
        self._count(which, "partly accepted")
        if report.accepted_length >= len(report.item.insert_text.encode("utf-16-le", "surrogatepass")) // 2:
            self.accepted(which)

    def accepted(self, arguments: Iterable[int]) -> None:
        """Counts an accepted suggestion, and looks later whether it was kept."""
        offered = self._count(arguments, "accepted")
        if offered is not None:
            asyncio.get_running_loop().call_later(KEPT_AFTER_S, self._look, offered)

    def _count(self, which: Iterable[int], stage: str) -> _Offered | None:
        """Counts a stage of a suggestion that is known and was not there yet."""
        offered = next(map(self._offered.get, which), None)
        if offered is None or stage in offered.stages:
            return None
        offered.stages.add(stage)
        self._counts[stage] += 1
        return offered

    def _look(self, offered: _Offered) -> None:
        document = self._documents.get(offered.document)
        if document is not None and offered.text in document.snapshot.text.replace("\r\n", "\n"):
            self._counts["kept"] += 1
