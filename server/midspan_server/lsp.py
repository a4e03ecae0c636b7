"""The language server: thin handlers around the completer, and the process that runs them on stdio.

All of what the engine needs is imported and started after `initialize` was answered, with the first request.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import msgspec
from lsprotocol import types
from pygls.capabilities import ServerCapabilitiesBuilder
from pygls.exceptions import JsonRpcException

from midspan_engine.errors import InputError, MidspanError
from midspan_engine.protocol import Report
from midspan_server.completion import Completer
from midspan_server.context import Selected
from midspan_server.debounce import Debounce
from midspan_server.drafts import DRAFT, ShownDraft, Watch
from midspan_server.edit_handlers import EditHandlers
from midspan_server.engine_client import EngineClient
from midspan_server.feedback import ACCEPTED, DID_ACCEPT_PART, DID_SHOW, Command, PartReport, ShownReport
from midspan_server.items import completion_list, inline_list
from midspan_server.launch import Launch
from midspan_server.loading import LoadingProgress
from midspan_server.rpc import Server
from midspan_server.settings import SECTION, Source, Trigger, client_source, load, read_user_file, user_file
from midspan_server.silence import STATUS, Silence, Status, internal_error
from midspan_server.stdio import Connection, open_stdio
from midspan_server.suggestion import Suggestions
from midspan_server.sync import Sync, position_of
from midspan_server.text import Encoding, valid

T = TypeVar("T")

logger = logging.getLogger(__name__)

CONFIGURATION_TIMEOUT_S = 10.0
"""Patience for a client that is busy starting; until then nothing is completed."""

TRIGGER_CHARACTERS = (".", "(", "[", "{", ",", "=", ":")
"""Where an expression is about to follow."""

_KINDS: dict[types.InlineCompletionTriggerKind, Trigger] = {
    types.InlineCompletionTriggerKind.Invoked: "invoked",
    types.InlineCompletionTriggerKind.Automatic: "automatic",
}


class Front:
    """Answers one client."""

    def __init__(self, checkpoint: str | None = None) -> None:
        self.server = Server(version("midspan"))
        watch = Watch(self._send_draft)
        self.completer = Completer(self._connect, self._tell, self._show, watch, self._folders)
        edits = EditHandlers(self.server, self.completer, watch)
        self._loading = LoadingProgress(self.server)
        self._client_name = ""
        self._counter = uuid4().hex
        self.is_exiting = False
        self._sync = Sync(self.completer)
        self._command_line = Source("the command line", {"checkpoint": checkpoint} if checkpoint else {})
        self._initial = Source("initializationOptions", {})
        self._has_configuration = False
        self._told: set[str] = set()
        for method, handler in (
            (types.INITIALIZE, self._initialize),
            (types.INITIALIZED, self._initialized),
            (types.WORKSPACE_DID_CHANGE_CONFIGURATION, self._did_change_configuration),
            (types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS, self._did_change_folders),
            (STATUS, self._status),
            (DID_SHOW, self._did_show),
            (DID_ACCEPT_PART, self._did_accept_part),
            (types.EXIT, self._exit),
        ):
            self._register(method, handler)
        for method, handler in self._sync.handlers():
            self._register(method, handler)
        self._register(types.TEXT_DOCUMENT_INLINE_COMPLETION, self._inline_completion, types.InlineCompletionOptions())
        self.server.command(ACCEPTED)(partial(self._accepted))
        for method, handler, options in edits.handlers():
            self._register(method, handler, options)
        for name, command in edits.commands():
            self.server.command(name)(partial(command))

    def _register(self, method: str, handler: Callable[..., Any], options: object = None) -> None:
        # pygls marks what it registers, and a bound method takes no marks.
        self.server.feature(method, options)(partial(handler))

    # Life and settings

    def _initialize(self, params: types.InitializeParams) -> None:
        capabilities = params.capabilities
        self._sync.encoding = _encoding(ServerCapabilitiesBuilder.choose_position_encoding(capabilities))
        self._client_name = params.client_info.name if params.client_info else ""
        self.completer.debounce = Debounce(self._client_name)
        self._initial = client_source("initializationOptions", params.initialization_options)
        workspace, document = capabilities.workspace, capabilities.text_document
        self._has_configuration = bool(workspace and workspace.configuration)
        self._load(None)
        has_ghost_text = bool(document and document.inline_completion)
        if not has_ghost_text or self.completer.loaded.settings.popup:
            # Otherwise the same text would be offered twice.
            options = types.CompletionOptions(trigger_characters=TRIGGER_CHARACTERS)
            self._register(types.TEXT_DOCUMENT_COMPLETION, self._completion, options)
        if self._has_configuration:
            # The client may be about to name files that must be left alone.
            waiting = "the client has not sent its settings yet"
            self.completer.loaded = msgspec.structs.replace(self.completer.loaded, blocked=waiting)

    async def _initialized(self, params: types.InitializedParams) -> None:
        await self._configure()
        workspace = self.server.client_capabilities.workspace
        if workspace and (changes := workspace.did_change_configuration) and changes.dynamic_registration:
            registration = types.Registration(
                id=types.WORKSPACE_DID_CHANGE_CONFIGURATION,
                method=types.WORKSPACE_DID_CHANGE_CONFIGURATION,
                register_options={"section": SECTION},
            )
            with contextlib.suppress(JsonRpcException):  # then changes count from the next start on
                request = self.server.client_register_capability_async(types.RegistrationParams([registration]))
                await asyncio.shield(request)

    async def _did_change_configuration(self, params: types.DidChangeConfigurationParams) -> None:
        settings = params.settings
        await self._configure(settings.get(SECTION) if isinstance(settings, dict) else None)

    def _did_change_folders(self, params: types.DidChangeWorkspaceFoldersParams) -> None:
        self.completer.lender.folders_changed()

    async def _configure(self, pushed: object = None) -> None:
        """Takes the client's configuration into force: asks for it, or takes what was pushed by clients without."""
        value = pushed
        if self._has_configuration:
            items = types.ConfigurationParams([types.ConfigurationItem(section=SECTION)])
            try:
                async with asyncio.timeout(CONFIGURATION_TIMEOUT_S):
                    # Shielded: pygls cannot bear that a request of ours is cancelled before its answer comes.
                    answer = await asyncio.shield(self.server.workspace_configuration_async(items))
                value = answer[0] if answer else None
            except (TimeoutError, JsonRpcException):
                self._tell(f"the client does not answer for its settings; those of {user_file()} are used")
        self._load(value)
        for problem in self.completer.loaded.problems:
            self._tell(problem)

    def _load(self, configuration: object) -> None:
        client = client_source(f"the client's {SECTION} section", configuration)
        self.completer.loaded = load([read_user_file(user_file()), self._initial, client, self._command_line])

    def _exit(self, params: object) -> None:
        self.is_exiting = True

    # Completion

    async def _inline_completion(self, params: types.InlineCompletionParams) -> types.InlineCompletionList:
        info = params.context.selected_completion_info
        selected = None
        if info is not None:
            selected = Selected(position_of(info.range.start), position_of(info.range.end), info.text)
        trigger = _KINDS[params.context.trigger_kind]
        return inline_list(await self._complete(params.text_document.uri, params.position, trigger, selected))

    async def _completion(self, params: types.CompletionParams) -> types.CompletionList:
        # Clients say "invoked" for every typed letter here, so it tells nothing.
        return completion_list(await self._complete(params.text_document.uri, params.position, "automatic", None))

    async def _complete(
        self, uri: str, position: types.Position, trigger: Trigger, selected: Selected | None
    ) -> Suggestions | Silence:
        try:
            return await self.completer.complete(uri, position_of(position), trigger, selected)
        except Exception as error:
            # A request is answered whatever happens.
            logger.exception("request %s failed", self.server.protocol.msg_id)
            silence = internal_error(error)
            self.completer.note(silence)
            return silence

    def _did_show(self, params: object) -> None:
        if (report := _report(params, ShownReport)) is not None:
            self.completer.feedback.shown(report)

    def _did_accept_part(self, params: object) -> None:
        if (report := _report(params, PartReport)) is not None:
            self.completer.feedback.accepted_part(report)

    def _accepted(self, *arguments: object) -> None:
        if (command := _report({"arguments": arguments}, Command)) is not None:
            self.completer.feedback.accepted(command.arguments)

    async def _status(self, params: object) -> dict[str, Any]:
        engine, error = None, None
        try:
            engine = await self.completer.engine_status()
        except MidspanError as unreachable:
            error = str(unreachable)
        report: dict[str, Any] = msgspec.to_builtins(
            self.completer.log.report(engine, error, self.completer.left_alone(), self.completer.lender.n_lent)
        )
        return report

    def _connect(self, checkpoint: str | None) -> EngineClient:
        idle_minutes = self.completer.loaded.settings.idle_minutes
        launch = Launch.resolve(Path(checkpoint) if checkpoint else None, idle_minutes)
        return EngineClient(
            launch,
            name=self._client_name,
            on_loading=self._loading,
            report=self._engine_report,
            lent=lambda: self.completer.lender.lent,
        )

    def _folders(self) -> list[str]:
        workspace = self.server.workspace
        return list(workspace.folders) or ([workspace.root_uri] if workspace.root_uri else [])

    def _engine_report(self) -> Report:
        log = self.completer.log
        silences = tuple(valid(silence.reason) for silence in log.last)
        return Report(counts=dict(log.counts), silences=silences, counter=self._counter)

    def _tell(self, message: str) -> None:
        """Shows a warning to the user, once."""
        if message not in self._told:
            self._told.add(message)
            self.server.window_show_message(types.ShowMessageParams(types.MessageType.Warning, f"Midspan: {message}"))

    def _show(self, status: Status) -> None:
        self.server.protocol.notify(STATUS, msgspec.to_builtins(status))

    def _send_draft(self, draft: ShownDraft) -> None:
        self.server.protocol.notify(DRAFT, msgspec.to_builtins(draft))


def serve_stdio(log_level: str = "WARNING", checkpoint: str | None = None) -> int:
    """Serves the editor at the other end of stdin and stdout until it leaves.

    Returns the exit status: 0 after an orderly `shutdown` and `exit`, 1 otherwise. Raises InputError where stdin and
    stdout are not pipes.
    """
    logging.basicConfig(level=log_level, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if log_level != "DEBUG":
        # pygls quotes messages, and with them source code, in its own log, even in that of errors.
        logging.getLogger("pygls").setLevel(logging.CRITICAL + 1)
    return asyncio.run(_serve_stdio(Front(checkpoint)))


async def _serve_stdio(front: Front) -> int:
    return await serve(front, await open_stdio())


async def serve(front: Front, connection: Connection) -> int:
    """Serves one client until it leaves; returns the exit status."""
    protocol = front.server.protocol
    protocol.set_writer(connection)
    try:
        while not front.is_exiting and (body := await connection.read()) is not None:
            protocol.receive(body)
            # Lets the handler see the documents as they are now, before the next change is read.
            await asyncio.sleep(0)
    except InputError as error:
        protocol.give_up(str(error))
        return 1
    finally:
        await front.completer.close()
        await connection.flush()
    return 0 if protocol.is_shut_down else 1


def _report(params: object, kind: type[T]) -> T | None:
    """Returns what a client reports, None for what cannot be read."""
    try:
        return msgspec.convert(params, kind)
    except msgspec.ValidationError as error:
        logger.warning("a %s was left aside: %s", kind.__name__, error)
        return None


def _encoding(kind: types.PositionEncodingKind | str) -> Encoding:
    encoding: Encoding = msgspec.convert(str(getattr(kind, "value", kind)), Encoding)
    return encoding
