"""Documents as the client sends them: opened, changed and closed, alone or as cells of a notebook."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lsprotocol import types

from midspan_engine.errors import InputError
from midspan_server.completion import Completer
from midspan_server.privacy import names_of, path_of
from midspan_server.text import Edit, Encoding, Position, TextDocument, valid

logger = logging.getLogger(__name__)


class Sync:
    """Keeps a completer's documents as the client has them."""

    def __init__(self, completer: Completer) -> None:
        self.encoding: Encoding = "utf-16"
        """What the positions of the client count, once that is agreed."""
        self._completer = completer

    def handlers(self) -> Iterator[tuple[str, Callable[..., Any]]]:
        """Yields the methods of the protocol that are heard, and who hears them."""
        yield types.TEXT_DOCUMENT_DID_OPEN, self._did_open
        yield types.TEXT_DOCUMENT_DID_CHANGE, self._did_change
        yield types.TEXT_DOCUMENT_DID_CLOSE, self._did_close
        yield types.NOTEBOOK_DOCUMENT_DID_OPEN, self._did_open_notebook
        yield types.NOTEBOOK_DOCUMENT_DID_CHANGE, self._did_change_notebook
        yield types.NOTEBOOK_DOCUMENT_DID_CLOSE, self._did_close_notebook

    def _did_open(self, params: types.DidOpenTextDocumentParams) -> None:
        self._open(params.text_document)

    def _did_change(self, params: types.DidChangeTextDocumentParams) -> None:
        self._change(params.text_document.uri, params.text_document.version, params.content_changes)

    def _did_close(self, params: types.DidCloseTextDocumentParams) -> None:
        self._completer.close_document(params.text_document.uri)

    def _did_open_notebook(self, params: types.DidOpenNotebookDocumentParams) -> None:
        notebook = params.notebook_document
        self._completer.notebooks.open(notebook.uri, [cell.document for cell in notebook.cells])
        for item in params.cell_text_documents:
            self._open(item)

    def _did_change_notebook(self, params: types.DidChangeNotebookDocumentParams) -> None:
        cells = params.change.cells
        if cells is None:
            return
        if (structure := cells.structure) is not None:
            array, new = structure.array, [cell.document for cell in structure.array.cells or ()]
            self._completer.notebooks.splice(params.notebook_document.uri, array.start, array.delete_count, new)
            for item in structure.did_open or ():
                self._open(item)
            for closed in structure.did_close or ():
                self._completer.close_document(closed.uri)
        for text in cells.text_content or ():
            self._change(text.document.uri, text.document.version, text.changes)

    def _did_close_notebook(self, params: types.DidCloseNotebookDocumentParams) -> None:
        for cell in self._completer.notebooks.close(params.notebook_document.uri):
            self._completer.close_document(cell)

    def _open(self, item: types.TextDocumentItem) -> None:
        self._completer.open_document(
            TextDocument.opened(
                item.uri, valid(item.language_id), item.text, item.version, self.encoding, _paths(item.uri)
            )
        )

    def _change(self, uri: str, version: int, changes: Sequence[types.TextDocumentContentChangeEvent]) -> None:
        document = self._completer.documents.get(uri)
        if document is None:
            logger.warning("a change of a document that is not open was left aside")
            return
        self._completer.debounce.note_key(asyncio.get_running_loop().time())
        if changes and isinstance(last := changes[-1], types.TextDocumentContentChangePartial):
            self._completer.neighbours.places.note(uri, last.range.start.line)
        try:
            document.change(map(_edit, changes), version)
        except InputError as error:
            logger.warning("a change did not fit its document: %s", error)


def _paths(uri: str) -> tuple[str, ...]:
    """Returns the names of the file behind a URI; a document of another scheme lies in no folder of this machine."""
    path = path_of(uri)
    return names_of(path) if uri.startswith("file:") else (path,)


def _edit(change: types.TextDocumentContentChangeEvent) -> Edit:
    if isinstance(change, types.TextDocumentContentChangePartial):
        return Edit(change.text, position_of(change.range.start), position_of(change.range.end))
    return Edit(change.text)


def position_of(position: types.Position) -> Position:
    """Returns a position of the protocol as ours."""
    return Position(position.line, position.character)
