"""Which files the engine may look at beside a document: those of its workspace folder, in the same language.

They are lent in the background, and again when they have changed: open ones as they stand in the editor, the others as
they lie on the disk. What a search of the folder does not find, because it is private or ignored, is not lent when it
is open either.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

import msgspec

from midspan_engine.protocol import Fill, Lend
from midspan_server.gate import unread
from midspan_server.privacy import first_match, names_of, path_of
from midspan_server.settings import Loaded
from midspan_server.text import TextDocument, valid
from midspan_server.workspace_files import MAX_BYTES, Look, Stamp, look_through

AGAIN_S = 60.0
"""How long what was found in a folder counts. Chosen."""
MAX_CHARACTERS = 8_000_000
"""Lent in all, of some seven folders or languages. Chosen."""


class _Shelf:
    """What is lent of one folder in one language."""

    def __init__(self, folder: str, language: str) -> None:
        self.folder, self.language = folder, language
        self.name = f"{language} {folder}"
        """Of the workspace, to the engine."""
        self.lent: dict[str, Lend] = {}
        self.stamps: dict[str, Stamp] = {}
        """Of the files that are lent as they lie on the disk."""
        self.seen: dict[str, str] = {}
        """Texts of open files as they were lent last."""
        self.paths: set[str] = set()
        """What a search has found; nothing else is lent."""
        self.looked: float | None = None

    def texts(self, documents: Mapping[str, TextDocument]) -> dict[str, str]:
        """Returns what is to be lent of open files that have changed."""
        changed = {
            path: document.snapshot.text
            for path, document in documents.items()
            if path in self.paths and document.language == self.language
            if self.seen.get(path) is not document.snapshot.text  # every key comes by here
        }
        self.seen |= changed
        return {path: _readable(documents[path]) for path in changed}


class Lender:
    """Keeps what is lent to the engine of one client."""

    def __init__(self, folders: Callable[[], Iterable[str]], send: Callable[[Sequence[Lend]], None]) -> None:
        """Takes the URIs of the workspace folders that are open, and how to tell the engine of files."""
        self._folders, self._send = folders, send
        self._loaded = Loaded()
        self._shelves: dict[str, _Shelf] = {}
        self._open: dict[str, TextDocument] = {}
        """Open documents by their paths."""
        self._looking: asyncio.Task[None] | None = None
        self._stopped = threading.Event()

    @property
    def lent(self) -> tuple[Lend, ...]:
        """All that an engine does not know yet that has just been started."""
        return tuple(lend for shelf in self._shelves.values() for lend in shelf.lent.values())

    @property
    def n_lent(self) -> int | None:
        """The number of files that are lent; None while a folder is looked through."""
        return len(self.lent) if self._looking is None else None

    def configure(self, loaded: Loaded) -> None:
        """Takes settings into force: what they keep to itself is taken back at once."""
        self._loaded = loaded
        for shelf in self._shelves.values():
            shelf.looked = None
            shelf.paths = {
                path for path in shelf.paths if self._may_lend(shelf.language) and not self._is_private(path)
            }
            self._lend(shelf, dict.fromkeys(shelf.lent.keys() - shelf.paths, ""))

    def beside(self, fill: Fill, document: TextDocument) -> Fill:
        """Returns a request that names what is lent beside its document; lends what has changed."""
        shelf, file = self._shelf_of(document), _file(document)
        if shelf is None or file is None:
            return fill
        self._lend(shelf, shelf.texts({path: other for path, other in self._open.items() if other is not document}))
        self._look(shelf, file)
        return msgspec.structs.replace(fill, workspace=shelf.name, file=file)

    def opened(self, document: TextDocument) -> None:
        """Has the folder of a document looked through, whose text counts from now on as it stands in the editor."""
        if (file := _file(document)) is not None:
            self._open[file] = document
            if (shelf := self._shelf_of(document)) is not None:
                self._look(shelf, file)

    def closed(self, document: TextDocument) -> None:
        """Takes the text of a document back; what lies on the disk counts again when the folder is looked through."""
        if (file := _file(document)) is not None and self._open.get(file) is document:
            del self._open[file]
            for shelf in self._shelves.values():
                if file in shelf.lent:
                    self._lend(shelf, {file: ""})
                    shelf.looked = None

    def stop(self) -> None:
        """Looks no further."""
        self._stopped.set()
        if self._looking is not None:
            self._looking.cancel()

    def _shelf_of(self, document: TextDocument) -> _Shelf | None:
        """Returns the shelf of the innermost workspace folder that holds a document; drops those that are closed."""
        if not self._may_lend(document.language) or (file := _file(document)) is None:
            return None
        folders = {_real(uri) for uri in self._folders() if uri.startswith("file:")}
        for name in [name for name, shelf in self._shelves.items() if shelf.folder not in folders]:
            shelf = self._shelves.pop(name)
            self._lend(shelf, dict.fromkeys(shelf.lent, ""))
        own = [folder for folder in folders if file.startswith(folder + os.sep)]
        if not own:
            return None
        shelf = _Shelf(max(own, key=len), document.language)
        return self._shelves.setdefault(shelf.name, shelf)

    def _look(self, shelf: _Shelf, near: str) -> None:
        """Has a folder looked through, unless that was done of late."""
        now = asyncio.get_running_loop().time()
        if self._looking is None and (shelf.looked is None or now - shelf.looked > AGAIN_S):
            shelf.looked = now
            self._looking = asyncio.create_task(self._look_through(shelf, near, self._loaded))

    async def _look_through(self, shelf: _Shelf, near: str, loaded: Loaded) -> None:
        is_private, is_stopped = self._is_private, self._stopped.is_set
        try:
            look = await asyncio.to_thread(
                look_through, shelf.folder, near, shelf.language, is_private, dict(shelf.stamps), is_stopped
            )
        finally:
            self._looking = None
        if loaded is self._loaded:  # else other files are private now, and the next request has it looked through again
            self._take(shelf, look)

    def _take(self, shelf: _Shelf, look: Look) -> None:
        """Lends what was found; what is gone is taken back, unless the search was cut short."""
        shelf.paths = look.paths | (shelf.paths if look.is_cut_short else set())
        texts = {found.path: found.text for found in look.changed} | dict.fromkeys(shelf.lent.keys() - shelf.paths, "")
        shelf.stamps |= {found.path: found.stamp for found in look.changed}
        for path in texts.keys() & self._open.keys() & shelf.paths:
            del texts[path], shelf.stamps[path]  # it counts as it stands in the editor
        self._lend(shelf, texts | shelf.texts(self._open))

    def _lend(self, shelf: _Shelf, texts: Mapping[str, str]) -> None:
        """Tells the engine of texts that it does not know yet; an empty one takes a file back."""
        known = {path: shelf.lent[path].text if path in shelf.lent else "" for path in texts}
        news = {path: text for path, text in texts.items() if text != known[path]}
        room = MAX_CHARACTERS - sum(len(lend.text) for lend in self.lent) if news else 0
        sent = list[Lend]()
        for path, text in news.items():
            if len(text) > room:
                continue
            room -= len(text) - len(known[path])
            sent.append(Lend(workspace=shelf.name, file=path, language=shelf.language, text=text))
            if text:
                shelf.lent[path] = sent[-1]
            else:
                del shelf.lent[path]
                shelf.stamps.pop(path, None)
                shelf.seen.pop(path, None)
        if sent:
            self._send(sent)

    def _may_lend(self, language: str) -> bool:
        settings = self._loaded.settings
        is_on = settings.enabled and settings.workspace_files and self._loaded.blocked is None
        return is_on and language not in settings.disabled_languages

    def _is_private(self, path: str) -> bool:
        globs = self._loaded.settings.context_excluded_globs
        return any(first_match(name, globs) is not None for name in names_of(path))


@lru_cache(maxsize=64)
def _real(uri: str) -> str:
    return os.path.realpath(path_of(uri))


def _file(document: TextDocument) -> str | None:
    """Returns where the text of a document is kept, None for one that is in no folder."""
    path = document.paths[-1] if document.uri.startswith("file:") and document.paths else ""
    return path if path and path == valid(path) else None


def _readable(document: TextDocument) -> str:
    """Returns what is lent of an open document: nothing of one that cannot be read, or is too long."""
    text = document.snapshot.text
    return valid(text) if unread(document) is None and len(text) <= MAX_BYTES else ""
