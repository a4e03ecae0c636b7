"""Edits and holes of open documents: from a request to versioned changes, or to a silence with a reason."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from midspan_engine.errors import InputError
from midspan_engine.protocol import Fill, Filled
from midspan_server.completion import Completer
from midspan_server.drafts import OnDraft
from midspan_server.edit_messages import EditParams, EditResult, HolesParams, TextEdit, VersionedDocument
from midspan_server.flights import Flights, Turn
from midspan_server.holes import NO_HOLES, find_holes, holes_at
from midspan_server.hunks import Hunk, rebased
from midspan_server.plain_text import PlainText
from midspan_server.presets import PRESETS, PresetId
from midspan_server.revision import Revision, outcome_of, request_of
from midspan_server.silence import Silence
from midspan_server.soundness import fits
from midspan_server.stretch import Stretch
from midspan_server.text import TextDocument, valid

MOVED = Silence("the text changed meanwhile; ask again")
WITHDRAWN = Silence("the edit was cancelled")


class Editor:
    """Edits the documents of a completer; per document, the newest edit wins."""

    def __init__(self, completer: Completer) -> None:
        self._completer = completer
        self._flights = Flights()

    async def edit(self, params: EditParams, on_draft: OnDraft | None = None) -> EditResult:
        """Answers `midspan/edit`. Cancelling the awaiting task withdraws it; no error of input or engine leaves."""

        def revision(plain: PlainText, language: str) -> Revision:
            instruction = params.instruction or ""
            if params.preset is None and not instruction.strip():
                raise InputError("say what to do: give a preset or an instruction")
            preset = None if params.preset is None else _preset_of(params.preset)
            start, end = plain.offsets_of(params.range)
            return Revision.of(plain.text, preset, start, end, strength=params.strength, instruction=instruction)

        return await self._answer(params.text_document, revision, on_draft)

    async def holes(self, params: HolesParams, on_draft: OnDraft | None = None) -> EditResult:
        """Answers `midspan/holes`, like `edit`."""

        def revision(plain: PlainText, language: str) -> Revision:
            return Revision.of_holes(plain.text, self._find(params, plain, language))

        return await self._answer(params.text_document, revision, on_draft)

    def withdraw(self, uri: str) -> None:
        """Answers the edit of a document that is under way, if there is one, and withdraws it from the engine."""
        self._flights.end(uri, WITHDRAWN)

    def has_holes(self, plain: PlainText, start: int, end: int, language: str) -> bool:
        """Says whether there is a hole between two offsets of a plain text."""
        marker = self._completer.loaded.settings.hole_marker
        return bool(find_holes(plain.text, start, end, marker, language))

    def silent(self, asked: VersionedDocument, silence: Silence) -> EditResult:
        """Notes a silence and returns it as an answer."""
        self._completer.note(silence)
        return EditResult(text_document=asked, edits=[], silence=silence.reason)

    def _find(self, params: HolesParams, plain: PlainText, language: str) -> list[Stretch]:
        marker = params.marker or self._completer.loaded.settings.hole_marker
        if params.positions is not None:
            if not params.positions:
                raise InputError("no position was named; name the places to fill, or leave positions out")
            return holes_at(plain.text, [plain.offset_at(each) for each in params.positions], marker, language)
        start, end = (0, len(plain.text)) if params.range is None else plain.offsets_of(params.range)
        found = find_holes(plain.text, start, end, marker, language)
        if not found:
            raise InputError(NO_HOLES.format(marker=marker))
        return found

    async def _answer(
        self,
        asked: VersionedDocument,
        revision_of: Callable[[PlainText, str], Revision],
        on_draft: OnDraft | None,
    ) -> EditResult:
        def begin(document: TextDocument) -> Turn[EditResult] | EditResult | Silence:
            if asked.version is not None and asked.version != document.snapshot.version:
                return MOVED
            plain = PlainText(document.snapshot)
            revision = revision_of(plain, document.language)
            first, last = (self._completer.context(document, plain.to_document(at), "invoked") for at in revision.ends)
            request = request_of(revision, first, last, valid(document.uri), self._completer.loaded.settings)
            request = self._completer.lender.named(request, document)

            def outcome(filled: Filled) -> EditResult | Silence:
                answer = outcome_of(revision, filled, first)
                if answer.silence is not None:
                    return Silence(answer.silence)
                now = PlainText(document.snapshot)
                regions = [(stretch.start, stretch.end) for stretch in revision.stretches]
                moved = rebased(answer.changes, regions, plain.text, now.text)
                if moved is None or (now.text != plain.text and not fits(now.text, moved, document.language)):
                    return MOVED
                return EditResult(
                    text_document=VersionedDocument(document.uri, document.snapshot.version),
                    edits=[_text_edit(now, change) for change in moved],
                    confidence=round(filled.candidates[0].confidence, 3),
                    message=answer.message,
                )

            return Turn(self._fill(request, on_draft), outcome)

        answer = await self._completer.serve(asked.uri, self._flights, begin)
        if isinstance(answer, Silence):
            return self.silent(asked, answer)
        self._completer.note(None, "edited")
        return answer

    async def _fill(self, request: Fill, on_draft: OnDraft | None) -> Filled:
        request = msgspec.structs.replace(request, watch=on_draft is not None)
        return await self._completer.engine_now().fill(request, on_draft)


def _preset_of(name: str) -> PresetId:
    """Returns the preset of a name. Raises InputError for one that nobody knows."""
    for preset in PRESETS:
        if preset.id == name:
            return preset.id
    raise InputError(f"there is no preset {name}; choose one of {', '.join(each.id for each in PRESETS)}")


def _text_edit(plain: PlainText, change: Hunk) -> TextEdit:
    return TextEdit(plain.span_of(change.start, change.end), plain.written(change.text))
