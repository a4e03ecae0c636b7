"""From a cursor to suggestions, or to a silence with a reason."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from functools import partial

from midspan_engine.errors import InputError, MidspanError
from midspan_engine.protocol import Candidate, EngineStatus, Fill, Filled
from midspan_server.context import Context, Selected, Trigger, context_at, fill_of, reason_not_to_ask
from midspan_server.engine_client import EngineClient
from midspan_server.filters import reason_to_drop
from midspan_server.privacy import first_match
from midspan_server.settings import Loaded
from midspan_server.silence import SUPERSEDED, Silence, SilenceLog, Status
from midspan_server.suggestion import Suggestion, Suggestions, reanchored
from midspan_server.text import Position, Snapshot, TextDocument

MAX_CHARACTERS = 2_000_000
"""Larger files are data or generated code; people do not type in them."""


class Completer:
    """Answers requests for the open documents of one client; per document, the newest request wins."""

    def __init__(
        self,
        connect: Callable[[str | None], EngineClient],
        tell: Callable[[str], None],
        show: Callable[[Status], None],
    ) -> None:
        """Takes how to reach the engine of a checkpoint, how to warn the user and how to show a changed status."""
        self.documents: dict[str, TextDocument] = {}
        self.loaded = Loaded()
        self.log = SilenceLog()
        self._connect = connect
        self._tell = tell
        self._show = show
        self._engine: tuple[str | None, EngineClient] | None = None
        self._flights: dict[str, asyncio.Future[Filled | Silence]] = {}
        self._chores: set[asyncio.Task[None]] = set()

    async def complete(
        self, uri: str, position: Position, trigger: Trigger, selected: Selected | None = None
    ) -> Suggestions | Silence:
        """Answers one request. Cancelling the awaiting task withdraws the fill; no error of input or engine leaves."""
        answer = await self._answer(uri, position, trigger, selected)
        self.note(answer if isinstance(answer, Silence) else None)
        return answer

    def note(self, silence: Silence | None) -> None:
        """Remembers an answer and shows the status if it changed."""
        if self.log.note(silence):
            self._show(self.log.status)

    async def _answer(
        self, uri: str, position: Position, trigger: Trigger, selected: Selected | None
    ) -> Suggestions | Silence:
        # Everything up to the first await sees the document as it was when the request arrived.
        self._end_flight(uri, SUPERSEDED)
        document = self.documents.get(uri)
        if document is None:
            return Silence("the document is not open; open it again")
        if (silence := self._gate(document)) is not None:
            return silence
        snapshot = document.snapshot
        try:
            context = context_at(snapshot, snapshot.offset_at(position), trigger, selected)
        except InputError as error:
            return Silence(str(error))
        if (silence := reason_not_to_ask(context)) is not None:
            return silence
        fill = fill_of(context, uri, document.language, self.loaded.settings)
        try:
            filled = await self._newest(uri, self._engine_now(), fill)
        except MidspanError as error:
            self._tell(str(error))
            return Silence(str(error), "failed")
        if isinstance(filled, Silence):
            return filled
        self.log.stats = filled.stats
        # Completion may have been switched off, or the file excluded, while the engine was at work.
        return self._gate(document) or self._offered(document, snapshot, context, filled)

    def close_document(self, uri: str) -> None:
        """Forgets a document, here and in the engine."""
        self.documents.pop(uri, None)
        self._end_flight(uri, Silence("the document was closed"))
        if self._engine is not None:
            self._later(self._engine[1].forget(uri))

    async def engine_status(self) -> EngineStatus | None:
        """Returns the state of the engine if this client has talked to it and it still runs."""
        return await self._engine[1].status() if self._engine is not None else None

    async def close(self) -> None:
        """Leaves the engine."""
        if self._engine is not None:
            await self._engine[1].close()

    def _gate(self, document: TextDocument) -> Silence | None:
        """Returns why nothing is to be completed in a document, whatever the position."""
        settings = self.loaded.settings
        if not settings.enabled:
            return Silence("completion is switched off (midspan.enabled)", "off")
        if self.loaded.blocked is not None:
            return Silence(self.loaded.blocked, "off")
        if document.language in settings.disabled_languages:
            return Silence(f"completion is switched off for {document.language} (midspan.disabled_languages)", "off")
        if glob := next(filter(None, (first_match(path, settings.excluded_globs) for path in document.paths)), None):
            return Silence(f"the file is excluded by {glob!r} (midspan.excluded_globs)", "off")
        if not document.is_in_step:
            return Silence("the editor sent a change that does not fit the document; close and open it again")
        text = document.snapshot.text
        if len(text) > MAX_CHARACTERS:
            return Silence(f"the file has {len(text):,} characters; nothing is completed above {MAX_CHARACTERS:,}")
        if "\0" in text:
            return Silence("the file is binary: it holds NUL characters")
        return None

    def _engine_now(self) -> EngineClient:
        """Returns the engine of the checkpoint in force; raises InputError when it cannot be reached at all."""
        checkpoint = self.loaded.settings.checkpoint
        if self._engine is None or self._engine[0] != checkpoint:
            engine = self._connect(checkpoint)
            if self._engine is not None:
                self._later(self._engine[1].close())
            self._engine = (checkpoint, engine)
        return self._engine[1]

    async def _newest(self, uri: str, engine: EngineClient, fill: Fill) -> Filled | Silence:
        """Returns the engine's answer, or at once the silence of a request that a newer one replaced."""
        flight: asyncio.Future[Filled | Silence] = asyncio.get_running_loop().create_future()
        self._flights[uri] = flight
        filling = asyncio.create_task(engine.fill(fill))
        filling.add_done_callback(partial(_land, flight))
        try:
            return await flight
        finally:
            filling.cancel()
            if self._flights.get(uri) is flight:
                del self._flights[uri]

    def _offered(
        self, document: TextDocument, snapshot: Snapshot, context: Context, filled: Filled
    ) -> Suggestions | Silence:
        if not filled.candidates:
            return Silence(filled.silence or "the model has nothing to offer here")
        kept, reason = self._kept(context, filled.candidates)
        if not kept:
            return Silence(reason)
        if self.documents.get(document.uri) is not document:
            return Silence("the document was closed")
        now = document.snapshot  # its text counts: clients change documents without a new version number
        moved = (reanchored(suggestion, snapshot, now) for suggestion in kept)
        kept = [suggestion for suggestion in moved if suggestion is not None]
        if not kept:
            return Silence("the document changed while the suggestion was made")
        return Suggestions(now, tuple(kept))

    def _kept(self, context: Context, candidates: tuple[Candidate, ...]) -> tuple[list[Suggestion], str]:
        """Returns the different suggestions that pass the filters, and why the last of the others did not."""
        kept: dict[str, Suggestion] = {}
        reason = ""
        for candidate in candidates:
            dropped = reason_to_drop(candidate.text, context)
            if dropped is not None:
                reason = dropped
                self.log.dropped[dropped] += 1
            elif candidate.text not in kept:
                text = context.selected + candidate.text
                kept[candidate.text] = Suggestion(context.start, context.end, text, candidate.confidence)
        return list(kept.values()), reason

    def _end_flight(self, uri: str, silence: Silence) -> None:
        flight = self._flights.pop(uri, None)
        if flight is not None and not flight.done():
            flight.set_result(silence)

    def _later(self, chore: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(_quietly(chore))
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)


def _land(flight: asyncio.Future[Filled | Silence], filling: asyncio.Task[Filled]) -> None:
    """Hands the outcome of a fill to those who still wait for it."""
    if filling.cancelled():
        flight.cancel()
    elif (error := filling.exception()) is not None:
        if not flight.done():
            flight.set_exception(error)
    elif not flight.done():
        flight.set_result(filling.result())


async def _quietly(chore: Coroutine[object, object, None]) -> None:
    """Runs what the user neither waits for nor can mend."""
    with contextlib.suppress(MidspanError):
        await chore
