"""Which files the engine may look at beside a document: those of its workspace folder, in the same language.

They are lent in the background, and again when they have changed: open ones as they stand in the editor, the others as
they lie on the disk. What a search of the folder does not find, because it is private or ignored, is not lent when it
is open either.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from midspan_engine.protocol import Fill, Lend
from midspan_server.gate import unread
from midspan_server.privacy import first_match, names_of, path_of
from midspan_server.settings import Loaded
from midspan_server.text import TextDocument, valid
from midspan_server.workspace_files import MAX_ALL_BYTES, MAX_FILE_BYTES, Look, Stamp, look_through

AGAIN_S = 60.0
"""How long what was found in a folder counts. Chosen."""
MAX_LENT_CHARACTERS = 8 * MAX_ALL_BYTES
"""Lent in all, of some eight folders or languages. Chosen."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """What is lent of one file, and where that stood."""

    lend: Lend
    origin: Stamp | str
    """The stamp of the file on the disk, or the very text of the open document: then it has not changed since."""


class _Shelf:
    """What is lent of one folder in one language."""

    def __init__(self, folder: str, language: str) -> None:
        self.folder, self.language = folder, language
        self.name = f"{language} {folder}"
        """Of the workspace, to the engine."""
        self.entries: dict[str, _Entry] = {}
        self.paths: set[str] = set()
        """What a search has found; nothing else is lent."""
        self.looked: float | None = None
        self.looking: asyncio.Task[None] | None = None

    @property
    def stamps(self) -> dict[str, Stamp]:
        """When the files were changed last that are lent as they lie on the disk."""
        return {path: entry.origin for path, entry in self.entries.items() if not isinstance(entry.origin, str)}

    def is_news(self, path: str, document: TextDocument) -> bool:
        """Says whether an open document is to be lent and was not as it stands now; every key comes by here."""
        if path not in self.paths or document.language != self.language:
            return False
        entry = self.entries.get(path)
        return entry is None or entry.origin is not document.snapshot.text


class Lender:
    """Keeps what is lent to the engine of one client."""

    def __init__(self, folders: Callable[[], Iterable[str]], send: Callable[[Sequence[Lend]], None]) -> None:
        """Takes the URIs of the workspace folders that are open, and how to tell the engine of files."""
        self._folders, self._send = folders, send
        self._loaded = Loaded()
        self._shelves: dict[str, _Shelf] = {}
        self._open: dict[str, TextDocument] = {}
        """Open documents by their paths."""
        self._stopped = threading.Event()

    @property
    def lent(self) -> tuple[Lend, ...]:
        """All that an engine does not know yet that has just been started."""
        return tuple(entry.lend for shelf in self._shelves.values() for entry in shelf.entries.values())

    @property
    def n_lent(self) -> int | None:
        """The number of files that are lent; None while a folder is looked through."""
        is_looking = any(shelf.looking is not None for shelf in self._shelves.values())
        return None if is_looking else sum(len(shelf.entries) for shelf in self._shelves.values())

    def configure(self, loaded: Loaded) -> None:
        """Takes settings into force: what they keep to itself is taken back at once."""
        self._loaded = loaded
        for shelf in self._shelves.values():
            shelf.looked = None
            is_on = self._may_lend(shelf.language)
            shelf.paths = {path for path in shelf.paths if is_on and not self._is_private(path)}
            self._take_back(shelf, shelf.entries.keys() - shelf.paths)

    def folders_changed(self) -> None:
        """Takes back what was lent of folders that are closed."""
        folders = self._open_folders()
        for name in [name for name, shelf in self._shelves.items() if shelf.folder not in folders]:
            shelf = self._shelves.pop(name)
            self._take_back(shelf, set(shelf.entries))

    def named(self, fill: Fill, document: TextDocument) -> Fill:
        """Returns a request that names what is lent beside its document; lends what has changed."""
        shelf, file = self._shelf_of(document), _file(document)
        if shelf is None or file is None:
            return fill
        self._lend_open(shelf, document)
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
                if file in shelf.entries:
                    self._take_back(shelf, {file})
                    shelf.looked = None

    def stop(self) -> None:
        """Looks no further."""
        self._stopped.set()
        for shelf in self._shelves.values():
            if shelf.looking is not None:
                shelf.looking.cancel()

    def _open_folders(self) -> set[str]:
        return {_real(uri) for uri in self._folders() if uri.startswith("file:")}

    def _shelf_of(self, document: TextDocument) -> _Shelf | None:
        """Returns the shelf of the innermost workspace folder that holds a document, None where nothing may be lent."""
        file = _file(document)
        if file is None or not self._may_lend(document.language):
            return None
        own = [folder for folder in self._open_folders() if file.startswith(folder + os.sep)]
        if not own:
            return None
        shelf = _Shelf(max(own, key=len), document.language)
        return self._shelves.setdefault(shelf.name, shelf)

    def _look(self, shelf: _Shelf, near: str) -> None:
        """Has a folder looked through, unless that was done of late."""
        now = asyncio.get_running_loop().time()
        if shelf.looking is None and (shelf.looked is None or now - shelf.looked > AGAIN_S):
            shelf.looked = now
            shelf.looking = asyncio.create_task(self._look_through(shelf, near, self._loaded))

    async def _look_through(self, shelf: _Shelf, near: str, loaded: Loaded) -> None:
        is_private, is_stopped = self._is_private, self._stopped.is_set
        try:
            look = await asyncio.to_thread(
                look_through, shelf.folder, near, shelf.language, is_private, shelf.stamps, is_stopped
            )
        finally:
            shelf.looking = None
        # Else other files are private now, or the folder is closed.
        if loaded is self._loaded and self._shelves.get(shelf.name) is shelf:
            self._take(shelf, look)

    def _take(self, shelf: _Shelf, look: Look) -> None:
        """Lends what was found; what is gone is taken back, unless the search was cut short."""
        shelf.paths = look.paths | (shelf.paths if look.is_cut_short else set())
        self._take_back(shelf, shelf.entries.keys() - shelf.paths)
        self._lend(
            shelf, [(found.path, found.text, found.stamp) for found in look.changed if found.path not in self._open]
        )
        self._lend_open(shelf)

    def _lend_open(self, shelf: _Shelf, but: TextDocument | None = None) -> None:
        """Lends open documents as they stand now; one that cannot be read, or is too long, is lent as empty."""
        news = [(path, each) for path, each in self._open.items() if each is not but and shelf.is_news(path, each)]
        self._lend(shelf, [(path, _readable(each), each.snapshot.text) for path, each in news])

    def _take_back(self, shelf: _Shelf, paths: Set[str]) -> None:
        self._send_news([msgspec.structs.replace(shelf.entries.pop(path).lend, text="") for path in sorted(paths)])

    def _lend(self, shelf: _Shelf, texts: Sequence[tuple[str, str, Stamp | str]]) -> None:
        """Lends texts of files, with their origins, as far as there is room."""
        if not texts:
            return
        room = MAX_LENT_CHARACTERS - sum(len(lend.text) for lend in self.lent)
        news = list[Lend]()
        for path, text, origin in texts:
            old = shelf.entries.get(path)
            n_more = len(text) - (len(old.lend.text) if old else 0)
            if n_more > max(room, 0):
                continue
            room -= n_more
            lend = Lend(workspace=shelf.name, file=path, language=shelf.language, text=text)
            shelf.entries[path] = _Entry(lend, origin)
            if text != (old.lend.text if old else ""):
                news.append(lend)
        self._send_news(news)

    def _send_news(self, news: Sequence[Lend]) -> None:
        if news:
            self._send(news)

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
    return valid(text) if unread(document) is None and len(text) <= MAX_FILE_BYTES else ""
