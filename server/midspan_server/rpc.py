"""pygls, with the parts replaced that do not fit a completion server.

- Documents are ours: pygls' own handlers, which keep a second copy of every text, are taken out.
- Every request is answered, also one whose parameters are malformed, that comes before `initialize` or after
  `shutdown`; pygls drops these.
- The connection ends with the process that the client names in `initialize`.
- `exit` ends the reading loop instead of raising SystemExit inside the event loop.
- Parameters that the protocol does not know stay as they are; pygls makes tuples with names of them.
- A command is the task of its request, so that `$/cancelRequest` and `shutdown` end it; pygls lets it run on at the
  one and fails at the other.
- Errors never pop up in the editor; they are logged without the message that caused them.
"""

from __future__ import annotations

import inspect
import json
import logging
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer
from pygls.protocol import JsonRPCNotification, JsonRPCRequestMessage, LanguageServerProtocol, default_converter

from midspan_server.stdio import Connection

logger = logging.getLogger(__name__)

_OURS = (
    types.EXIT,
    types.TEXT_DOCUMENT_DID_OPEN,
    types.TEXT_DOCUMENT_DID_CHANGE,
    types.TEXT_DOCUMENT_DID_CLOSE,
    types.NOTEBOOK_DOCUMENT_DID_OPEN,
    types.NOTEBOOK_DOCUMENT_DID_CHANGE,
    types.NOTEBOOK_DOCUMENT_DID_CLOSE,
)


_NOTEBOOKS = types.NotebookDocumentSyncOptions([types.NotebookDocumentFilterWithNotebook(notebook="*")])
"""Every notebook: what a cell may be completed in is settled by its language, as for files."""


class Protocol(LanguageServerProtocol):
    """Turns message bodies into calls of handlers, and their results into answers."""

    def __init__(self, server: LanguageServer, converter: Any) -> None:
        super().__init__(server, converter)
        for method in _OURS:
            del self.fm.builtin_features[method]
        self.fm.builtin_features[types.WORKSPACE_EXECUTE_COMMAND] = self._run_command
        self.is_initialized = False
        self._connection: Connection | None = None

    def set_writer(self, writer: Any, include_headers: bool = True) -> None:
        """Takes where answers go."""
        super().set_writer(writer, include_headers)
        self._connection = writer if isinstance(writer, Connection) else None

    @property
    def is_shut_down(self) -> bool:
        return self._shutdown

    def receive(self, body: bytes) -> None:
        """Handles one message; whatever is wrong with it is answered or logged, never raised."""
        try:
            data = json.loads(body)
        except (ValueError, RecursionError):
            self._send_error(None, types.ErrorCodes.ParseError, "the message is not JSON")
            return
        if (fault := _fault(data)) is not None:
            logger.warning("refused a message: %s", fault)
            self._send_error(None, types.ErrorCodes.InvalidRequest, fault)
            return
        method: str | None = data.get("method")
        request_id: Any = data.get("id")
        if not self._is_welcome(method, request_id):
            return
        try:
            self._dispatch(data, method, request_id)
        except Exception as error:  # one message must not take the server from all documents
            kind = type(error).__name__
            logger.error("a message failed with %s", kind)
            self._refuse(request_id, types.ErrorCodes.InternalError, f"internal error: {kind}; please report it")

    def give_up(self, reason: str) -> None:
        """Tells the client why nothing more is read."""
        logger.error("left the client: %s", reason)
        self._send_error(None, types.ErrorCodes.ParseError, reason)

    async def _run_command(self, params: types.ExecuteCommandParams) -> Any:
        command = self.fm.commands.get(params.command)
        if command is None:
            raise JsonRpcInvalidParams(f"there is no command {params.command}")
        result = command(*(params.arguments or ()))
        return await result if inspect.isawaitable(result) else result

    def _dispatch(self, data: dict[str, Any], method: str | None, request_id: int | str | None) -> None:
        try:
            message = self.structure_message(data)
        except JsonRpcException:
            reason = f"the parameters of {method} are malformed" if method else "the client's answer is malformed"
            if method is not None:
                self._refuse(request_id, types.ErrorCodes.InvalidParams, reason)
            elif request_id is not None:
                error = types.ResponseError(types.ErrorCodes.InvalidParams, reason)
                self._handle_response(request_id, error=error)
            return
        if method == types.INITIALIZE:
            self.is_initialized = True
            if self._connection is not None and message.params.process_id is not None:
                self._connection.end_with(message.params.process_id)
        self.handle_message(message)

    def _is_welcome(self, method: str | None, request_id: int | str | None) -> bool:
        """Says whether a message may come now, in the order that the protocol prescribes."""
        if method in (None, types.EXIT):
            return True
        if self._shutdown:
            self._refuse(request_id, types.ErrorCodes.InvalidRequest, "the server was shut down; start a new one")
            return False
        if (method == types.INITIALIZE) == self.is_initialized:
            code = types.ErrorCodes.InvalidRequest if self.is_initialized else types.ErrorCodes.ServerNotInitialized
            order = "comes only once" if self.is_initialized else "must wait for initialize"
            self._refuse(request_id, code, f"{method} {order}")
            return False
        return True

    def _refuse(self, request_id: int | str | None, code: types.ErrorCodes, reason: str) -> None:
        """Answers a request with an error; a notification, which has no id, is only logged."""
        logger.warning("refused a message: %s", reason)
        if request_id is not None:
            self._send_error(request_id, code, reason)

    def _send_error(self, request_id: int | str | None, code: types.ErrorCodes, reason: str) -> None:
        self._send_data(types.ResponseErrorMessage(id=request_id, error=types.ResponseError(code, reason)))


def _fault(data: object) -> str | None:
    """Returns what is wrong with the envelope of a message; pygls fails inside at ids that cannot be looked up."""
    if not isinstance(data, dict) or data.get("jsonrpc") != Protocol.VERSION:
        return "the message is not JSON-RPC 2.0"
    if not isinstance(data.get("method", ""), str):
        return "the method is no string"
    # An error with the id null answers a message of ours that the client could not read.
    is_lost_error = "error" in data and data.get("id") is None
    if "id" in data and not is_lost_error and not _is_id(data["id"]):
        return "the id is neither a whole number nor a string"
    if data.get("method") == types.CANCEL_REQUEST:
        params = data.get("params")
        if not isinstance(params, dict) or not _is_id(params.get("id")):
            return "the id to cancel is neither a whole number nor a string"
    return None


def _is_id(value: object) -> bool:
    return isinstance(value, int | str) and not isinstance(value, bool)


def _converter() -> Any:
    converter: Any = default_converter()  # type: ignore[no-untyped-call]  # pygls leaves it unannotated
    for kind in (JsonRPCRequestMessage, JsonRPCNotification):
        converter.register_structure_hook(kind, lambda message, kind: kind(**{"params": None, **message}))
    return converter


class Server(LanguageServer):
    """Speaks to one client."""

    protocol: Protocol

    def __init__(self, version: str) -> None:
        super().__init__(
            "midspan", version, notebook_document_sync=_NOTEBOOKS, protocol_cls=Protocol, converter_factory=_converter
        )

    def report_server_error(self, error: Exception, source: Any) -> None:
        """Logs an error of a handler by its kind: its text may quote a document."""
        logger.error("a handler failed with %s (%s)", type(error).__name__, getattr(source, "__name__", source))
