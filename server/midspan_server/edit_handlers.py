"""The editor's side of edits and holes: custom requests, code actions, commands, progress and the watched canvas."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import msgspec
from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams

from midspan_engine.errors import InputError, MidspanError
from midspan_engine.protocol import Draft
from midspan_server.completion import Completer
from midspan_server.drafts import WATCH, OnDraft, Watch, WatchParams
from midspan_server.edit_messages import (
    APPLY_EDIT,
    APPLY_HOLES,
    EDIT,
    HOLES,
    PRESETS,
    EditParams,
    EditResult,
    HolesParams,
    VersionedDocument,
)
from midspan_server.editing import Editor
from midspan_server.gate import closed_gate
from midspan_server.items import range_of
from midspan_server.plain_text import PlainText
from midspan_server.presets import PRESETS as ALL_PRESETS
from midspan_server.presets import Presets, stretch_of
from midspan_server.rpc import Server
from midspan_server.silence import internal_error
from midspan_server.sync import position_of
from midspan_server.text import Span, TextDocument
from midspan_server.work_done import WorkDone

logger = logging.getLogger(__name__)

KIND = "refactor.rewrite.midspan"
TITLE = "Midspan: editing"
TOKEN = "midspan/editing"
"""What the token of each progress begins with that the server creates."""
MAX_OFFERED = 200_000
"""Characters of a document in which code actions are offered: editors ask whenever the cursor moves. Chosen."""

MENU_S = 1.0
"""Patience of a menu with an engine, which may stand still for seconds while it loads. Chosen."""

P = TypeVar("P", EditParams, HolesParams)


class EditHandlers:
    """Hears what one client asks about edits."""

    def __init__(self, server: Server, completer: Completer, watch: Watch) -> None:
        self._server, self._completer, self._watch = server, completer, watch
        self._editor = Editor(completer)

    def handlers(self) -> Iterator[tuple[str, Callable[..., Any], object]]:
        """Yields the methods that are heard, who hears them, and what the client is told of them."""
        yield EDIT, self._edit, None
        yield HOLES, self._holes, None
        yield PRESETS, self._presets, None
        yield WATCH, self._switch_watch, None
        yield types.TEXT_DOCUMENT_CODE_ACTION, self._code_action, types.CodeActionOptions([KIND])

    def commands(self) -> Iterator[tuple[str, Callable[..., Any]]]:
        """Yields the commands that any client may run."""
        yield APPLY_EDIT, self._apply_edit
        yield APPLY_HOLES, self._apply_holes

    async def _edit(self, params: object) -> dict[str, Any]:
        return _plain(await self._run(self._editor.edit, _needed(params, EditParams)))

    async def _holes(self, params: object) -> dict[str, Any]:
        return _plain(await self._run(self._editor.holes, _needed(params, HolesParams)))

    async def _presets(self, params: object) -> dict[str, Any]:
        status = None
        with contextlib.suppress(MidspanError, TimeoutError):  # the engine says what is wrong, once it is asked
            async with asyncio.timeout(MENU_S):
                status = await self._completer.engine_now().status()
        return _plain(Presets(ALL_PRESETS, status is not None and status.instructions))

    def _switch_watch(self, params: object) -> dict[str, Any]:
        self._watch.switch(_needed(params, WatchParams).enabled)
        return {"enabled": self._watch.is_on}

    async def _apply_edit(self, *arguments: object) -> None:
        await self._apply(self._editor.edit, _needed(arguments[0] if arguments else None, EditParams))

    async def _apply_holes(self, *arguments: object) -> None:
        await self._apply(self._editor.holes, _needed(arguments[0] if arguments else None, HolesParams))

    async def _apply(self, serve: Callable[..., Awaitable[EditResult]], params: P) -> None:
        """Runs an edit for a client that does not preview it, and sends it as one versioned change."""
        result = await self._run(serve, params, is_command=True)
        if result.silence is not None:
            self._say(result.silence)
            return
        document = result.text_document
        edits = [types.TextEdit(range_of(each.range), each.new_text) for each in result.edits]
        versioned = types.OptionalVersionedTextDocumentIdentifier(document.uri, document.version)
        workspace = self._server.client_capabilities.workspace
        if workspace and workspace.workspace_edit and workspace.workspace_edit.document_changes:
            edit = types.WorkspaceEdit(document_changes=[types.TextDocumentEdit(versioned, edits)])
        else:
            edit = types.WorkspaceEdit(changes={document.uri: edits})
        request = self._server.workspace_apply_edit_async(types.ApplyWorkspaceEditParams(edit, label="Midspan"))
        with contextlib.suppress(JsonRpcException):
            # Shielded: pygls cannot bear that a request of ours is cancelled before its answer comes.
            answer = await asyncio.shield(request)
            if not answer.applied:
                self._say(answer.failure_reason or "the editor did not take the change; ask again")
                return
        if result.message is not None:
            self._say(result.message)

    async def _run(
        self, serve: Callable[..., Awaitable[EditResult]], params: P, *, is_command: bool = False
    ) -> EditResult:
        """Runs an edit with its progress shown and its canvas watched, where somebody looks."""
        try:
            with self._watch.follow(params.text_document.uri) as show, self._progress(params, is_command) as report:
                return await serve(params, _both(show, report))
        except Exception as error:
            logger.exception("request %s failed", self._server.protocol.msg_id)
            return self._editor.silent(params.text_document, internal_error(error))

    @contextlib.contextmanager
    def _progress(self, params: EditParams | HolesParams, is_command: bool) -> Iterator[OnDraft | None]:
        """Yields who reports the progress of a request, None where nobody looks."""
        token, task = params.work_done_token, asyncio.current_task()
        assert task is not None, "handlers of requests run as tasks"
        shown: WorkDone | None = None
        if token in self._server.work_done_progress.tokens:
            logger.warning("a request ran without progress: its token is in use")
        elif token is not None:
            # window/workDoneProgress/cancel ends the request as $/cancelRequest does
            shown = WorkDone(self._server, token, TITLE, task.cancel)
            shown.begin()
        elif is_command:
            # Clients give a command no token and show its error as a failure: cancelled, it ends with a silence.
            withdraw = partial(self._editor.withdraw, params.text_document.uri)
            shown = WorkDone.offered(self._server, TOKEN, TITLE, withdraw)
        if shown is None:
            yield None
            return
        last = 0

        def report(draft: Draft) -> None:
            nonlocal last
            last = max(last, min(int(draft.share * 100), 100))  # a percentage never falls
            shown.report(last, f"pass {draft.step}")

        try:
            yield report
        finally:
            shown.end()

    def _code_action(self, params: types.CodeActionParams) -> list[types.CodeAction]:
        only = params.context.only
        if only and not any(kind == KIND or KIND.startswith(f"{kind}.") or kind == "" for kind in map(_kind, only)):
            return []
        document = self._completer.documents.get(params.text_document.uri)
        if document is None or closed_gate(document, self._completer.loaded) is not None:
            return []
        span = Span(position_of(params.range.start), position_of(params.range.end))
        try:
            return list(self._actions(document, span))
        except InputError:
            return []

    def _actions(self, document: TextDocument, span: Span) -> Iterator[types.CodeAction]:
        named = VersionedDocument(document.uri, document.snapshot.version)
        plain = PlainText(document.snapshot)
        if len(plain.text) > MAX_OFFERED:
            return
        first, last = plain.offsets_of(span)
        for preset in ALL_PRESETS:
            with contextlib.suppress(InputError):
                stretch_of(preset.id, plain.text, first, last)
                yield _action(preset.title, APPLY_EDIT, EditParams(text_document=named, range=span, preset=preset.id))
        if first < last and self._editor.has_holes(plain, first, last, document.language):
            title = "Fill the holes of the selection"
            yield _action(title, APPLY_HOLES, HolesParams(text_document=named, range=span))

    def _say(self, message: str) -> None:
        self._server.window_show_message(types.ShowMessageParams(types.MessageType.Info, f"Midspan: {message}"))


def _action(title: str, command: str, params: EditParams | HolesParams) -> types.CodeAction:
    sent = {name: each for name, each in _plain(params).items() if each is not None}
    return types.CodeAction(
        title=f"{title} (Midspan)", kind=KIND, command=types.Command(title, command, arguments=[sent])
    )


def _both(first: OnDraft | None, second: OnDraft | None) -> OnDraft | None:
    if first is None or second is None:
        return first or second

    def show(draft: Draft) -> None:
        first(draft)
        second(draft)

    return show


T = TypeVar("T")


def _needed(params: object, kind: type[T]) -> T:
    """Returns the parameters of a request. Raises JsonRpcInvalidParams for others."""
    try:
        return msgspec.convert(params, kind)
    except msgspec.ValidationError as error:
        raise JsonRpcInvalidParams(f"the parameters are malformed: {error}") from error


def _plain(struct: msgspec.Struct) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(struct)
    return told


def _kind(kind: types.CodeActionKind | str) -> str:
    return str(getattr(kind, "value", kind))
