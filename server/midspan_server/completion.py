"""From a cursor to suggestions, or to a silence with a reason."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

import msgspec

from midspan_engine.errors import InputError, MidspanError
from midspan_engine.protocol import EngineStatus, Fill, Filled
from midspan_server.asking import fill_of, reason_not_to_ask
from midspan_server.context import Context, Selected, context_at
from midspan_server.debounce import Debounce
from midspan_server.drafts import Watch
from midspan_server.engine_client import EngineClient
from midspan_server.engine_in_force import EngineInForce
from midspan_server.feedback import Feedback
from midspan_server.flights import Flights, Turn
from midspan_server.gate import closed_gate
from midspan_server.lending import Lender
from midspan_server.look_ahead import LookAhead
from midspan_server.memory import Memory
from midspan_server.neighbours import Neighbours
from midspan_server.notebooks import Notebooks
from midspan_server.settings import Loaded, Trigger
from midspan_server.sieve import Sieve
from midspan_server.silence import SUPERSEDED, Offer, Silence, SilenceLog, Status
from midspan_server.suggestion import Suggestions, reanchored
from midspan_server.text import Position, Snapshot, TextDocument, valid

T = TypeVar("T")

_RESET = Silence("the settings changed while the suggestion was made")


class Completer:
    """Answers requests for the open documents of one client; per document, the newest request wins."""

    def __init__(
        self,
        connect: Callable[[str | None], EngineClient],
        tell: Callable[[str], None],
        show: Callable[[Status], None],
        watch: Watch,
        folders: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """Takes how to reach the engine of a checkpoint, how to warn the user, how to show a changed status, who
        watches the canvas, and the URIs of the workspace folders.
        """
        self.documents: dict[str, TextDocument] = {}
        self.notebooks = Notebooks()
        self.log = SilenceLog()
        self.feedback = Feedback(self.documents, self.log.counts)
        self.debounce = Debounce()
        self._loaded = Loaded()
        self._memory = Memory()
        self.neighbours = Neighbours()
        self._look_ahead = LookAhead()
        self._flights = Flights()
        self._sieve = Sieve(self.log.dropped)
        self._engine = EngineInForce(connect)
        self.lender = Lender(folders, self._engine.lend)
        self._tell = tell
        self._show = show
        self._watch = watch

    @property
    def loaded(self) -> Loaded:
        """The settings in force."""
        return self._loaded

    @loaded.setter
    def loaded(self, loaded: Loaded) -> None:
        if loaded != self._loaded:
            self._loaded = loaded
            self.lender.configure(loaded)
            # What was asked under the old ones is neither waited for nor kept.
            self._memory.clear()
            self._look_ahead.drop()
            for uri in self.documents:
                self._flights.end(uri, _RESET)

    async def complete(
        self, uri: str, position: Position, trigger: Trigger, selected: Selected | None = None
    ) -> Suggestions | Silence:
        """Answers one request. Cancelling the awaiting task withdraws the fill; no error of input or engine leaves."""
        answer = await self.serve(
            uri, self._flights, lambda document: self._begun(document, position, trigger, selected)
        )
        if isinstance(answer, Silence):
            if answer.state == "failed":
                self._tell(answer.reason)
            self.note(answer)
            return answer
        self.note(None)
        self.feedback.offered(uri, answer.items)
        self.log.confidences = tuple(each.confidence for each in answer.items)
        return answer

    def note(self, silence: Silence | None, offer: Offer = "suggested") -> None:
        """Remembers an answer and shows the status if it changed."""
        if self.log.note(silence, offer):
            self._show(self.log.status)

    async def serve(
        self, uri: str, flights: Flights, begin: Callable[[TextDocument], Turn[T] | T | Silence]
    ) -> T | Silence:
        """Answers one request for a document, of which the newest among `flights` wins.

        `begin` sees the document as it is when the request arrives; it answers by itself, or says what to ask the
        engine. Cancelling the awaiting task withdraws the fill; no error of input or engine leaves.
        """
        # Everything up to the first await sees the document as it was when the request arrived.
        flights.end(uri, SUPERSEDED)
        document = self.documents.get(uri)
        if document is None:
            return Silence("the document is not open; open it again")
        if (silence := closed_gate(document, self.loaded)) is not None:
            return silence
        try:
            begun = begin(document)
        except InputError as error:
            return Silence(str(error))
        if not isinstance(begun, Turn):
            return begun
        try:
            filled = await flights.answer(uri, begun.fill)
        except MidspanError as error:
            return Silence(str(error), "failed")
        # Midspan may have been switched off, or the file excluded or closed, while the engine was at work.
        if (silence := closed_gate(document, self.loaded)) is not None:
            return silence
        if isinstance(filled, Silence):
            return filled
        if self.documents.get(uri) is not document:
            return Silence("the document was closed")
        return begun.outcome(filled)

    def _begun(
        self, document: TextDocument, position: Position, trigger: Trigger, selected: Selected | None
    ) -> Turn[Suggestions] | Suggestions | Silence:
        snapshot, loaded = document.snapshot, self.loaded
        context = self.context(document, snapshot.offset_at(position), trigger, selected)
        if recalled := self._memory.recall(document.uri, context):
            self.log.counts["recalled"] += 1
            return Suggestions(snapshot, recalled)
        if (silence := reason_not_to_ask(context)) is not None:
            return silence
        self._look_ahead.drop()

        def outcome(filled: Filled) -> Suggestions | Silence:
            self.log.stats = filled.stats
            return self._offered(document, snapshot, context, filled) if self.loaded is loaded else _RESET

        return Turn(self._fill(context, document.uri, self._wait_s(trigger)), outcome)

    def open_document(self, document: TextDocument) -> None:
        """Takes a document in, in the place of one that a client opens anew without closing it."""
        if document.uri in self.documents:
            self.close_document(document.uri)
        self.documents[document.uri] = document
        self.lender.opened(document)

    def close_document(self, uri: str) -> None:
        """Forgets a document, here and in the engine."""
        self._look_ahead.drop()  # what it asks may quote this document, whichever it is made for
        if (document := self.documents.pop(uri, None)) is not None:
            self.lender.closed(document)
        self._flights.end(uri, Silence("the document was closed"))
        self._memory.forget(uri)
        self.neighbours.forget(uri)
        self._engine.forget(uri)

    def left_alone(self) -> dict[str, str]:
        """Returns the open documents in which nothing is completed, and why."""
        closed = ((uri, closed_gate(document, self.loaded)) for uri, document in self.documents.items())
        return {uri: silence.reason for uri, silence in closed if silence is not None}

    async def engine_status(self) -> EngineStatus | None:
        """Returns the state of the engine if this client has talked to it and it still runs."""
        return await self._engine.status()

    async def close(self) -> None:
        """Leaves the engine."""
        self._look_ahead.drop()
        self.lender.stop()
        await self._engine.close()

    def context(
        self, document: TextDocument, offset: int, trigger: Trigger, selected: Selected | None = None
    ) -> Context:
        """Returns what surrounds an offset of the document as it is now."""
        snapshot = document.snapshot
        around = self.notebooks.around(document.uri, self.documents)
        if self.loaded.settings.neighbour_characters:
            line = snapshot.lines.line_of(offset)
            found = self.neighbours.gather(document, line, self.documents, self.loaded.settings)
            around = msgspec.structs.replace(around, before=found + around.before)
        return context_at(snapshot, offset, trigger, selected, language=document.language, around=around)

    def _wait_s(self, trigger: Trigger) -> float:
        """Returns how long a request is held back for the next key."""
        return self.debounce.wait_s(asyncio.get_running_loop().time()) if trigger == "automatic" else 0.0

    async def _fill(self, context: Context, uri: str, wait_s: float) -> Filled:
        if wait_s:
            await asyncio.sleep(wait_s)
        fill = self._asked(context, uri, waited_ms=wait_s * 1e3)
        with self._watch.follow(uri) as show:
            return await self.engine_now().fill(msgspec.structs.replace(fill, watch=show is not None), show)

    def _asked(self, context: Context, uri: str, waited_ms: float = 0.0) -> Fill:
        fill = fill_of(context, valid(uri), self.loaded.settings, waited_ms=waited_ms)
        document = self.documents.get(uri)
        return fill if document is None else self.lender.named(fill, document)

    def engine_now(self) -> EngineClient:
        """Returns the engine of the checkpoint in force; raises InputError when it cannot be reached at all."""
        return self._engine.of(self.loaded.settings.checkpoint)

    def _offered(
        self, document: TextDocument, snapshot: Snapshot, context: Context, filled: Filled
    ) -> Suggestions | Silence:
        if not filled.candidates:
            return Silence(filled.silence or "the model has nothing to offer here")
        kept, reason = self._sieve.kept(context, filled.candidates)
        if not kept:
            return Silence(reason)
        self._memory.keep(document.uri, context, kept)
        now = document.snapshot  # its text counts: clients change documents without a new version number
        moved = (reanchored(suggestion, snapshot, now) for suggestion in kept)
        offered = tuple(suggestion for suggestion in moved if suggestion is not None)
        if not offered:
            return Silence("the document changed while the suggestion was made")
        ahead = context.after(kept[0].text[len(context.selected) :])
        if reason_not_to_ask(ahead) is None:
            self._look_ahead.begin(partial(self._guess, document, ahead))
        return Suggestions(now, offered)

    async def _guess(self, document: TextDocument, ahead: Context) -> None:
        """Asks for what comes after a suggestion and keeps it for the request of who accepts that."""
        if closed_gate(document, self.loaded) is not None:
            return
        fill = msgspec.structs.replace(self._asked(ahead, document.uri), priority="prefetch")
        filled = await self.engine_now().fill(fill)
        kept, _ = self._sieve.kept(ahead, filled.candidates)
        if self.documents.get(document.uri) is document:
            self._memory.keep(document.uri, ahead, kept)
