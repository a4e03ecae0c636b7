"""Which files the engine may look at beside a document: those of its workspace folder, in the same language.

They are lent in the background, and again when they have changed: open ones as they stand in the editor, the others as
they lie on the disk.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable

import msgspec

from midspan_engine.protocol import Fill, Lend
from midspan_server.gate import unread
from midspan_server.privacy import first_match, names_of, path_of
from midspan_server.settings import Settings
from midspan_server.text import TextDocument, valid
from midspan_server.workspace_files import Found, Stamp, look_through

AGAIN_S = 60.0
"""How long what was found in a folder counts. Chosen."""


class Lender:
    """Keeps what is lent to the engine of one client."""

    def __init__(self, folders: Callable[[], Iterable[str]], send: Callable[[Lend], None]) -> None:
        """Takes the URIs of the workspace folders that are open, and how to tell the engine of a file."""
        self._folders, self._send = folders, send
        self._lent: dict[tuple[str, str], Lend] = {}
        self._stamps: dict[str, Stamp] = {}
        self._looked: dict[tuple[str, str], float] = {}
        self._looking: set[asyncio.Task[None]] = set()
        self._settings = Settings()
        self._seen: dict[str, str] = {}
        """Texts of open files as they were looked at last."""
        self._open: dict[str, TextDocument] = {}
        self._stopped = threading.Event()

    @property
    def lent(self) -> tuple[Lend, ...]:
        """All that an engine does not know yet that has just been started."""
        return tuple(self._lent.values())

    @property
    def n_lent(self) -> int | None:
        """The number of files that are lent; None while a folder is looked through."""
        return None if self._looking else len(self._lent)

    def beside(self, fill: Fill, document: TextDocument, open_: Iterable[TextDocument], settings: Settings) -> Fill:
        """Returns a request that names what is lent beside its document, which is seen to."""
        folder = self.see_to(document, open_, settings)
        return fill if folder is None else msgspec.structs.replace(fill, workspace=folder, file=document.paths[-1])

    def see_to(self, document: TextDocument, open_: Iterable[TextDocument], settings: Settings) -> str | None:
        """Lends what lies beside a document and has changed; returns the folder, None where nothing is looked at."""
        if settings != self._settings:
            self._settings = settings
            self._looked.clear()
            self._seen.clear()
            self._take_back(lambda file: not settings.workspace_files or self._is_private(file))
        file = _file(document)
        folder = self._folder_of(file) if file and settings.workspace_files else None
        if file is None or folder is None:
            return None
        self._open = {path: other for other in open_ if (path := _file(other))}
        for path, other in self._open.items():
            if other is not document and path.startswith(folder + os.sep) and other.language == document.language:
                self._lend_open(folder, path, other)
        self._look(folder, file)
        return folder

    def stop(self) -> None:
        """Looks no further."""
        self._stopped.set()
        for task in self._looking:
            task.cancel()

    def _look(self, folder: str, file: str) -> None:
        """Has a folder looked through, unless that was done of late."""
        which, now = (folder, os.path.splitext(file)[1]), asyncio.get_running_loop().time()
        if self._looking or (which in self._looked and now - self._looked[which] < AGAIN_S):
            return
        self._looked[which] = now
        task = asyncio.create_task(self._look_through(folder, file))
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)

    async def _look_through(self, folder: str, file: str) -> None:
        known = dict(self._stamps)
        kept, changed = await asyncio.to_thread(
            look_through, folder, file, self._is_private, known, self._stopped.is_set
        )
        suffix = os.path.splitext(file)[1]
        gone = {path for place, path in self._lent if place == folder and path.endswith(suffix)} - kept
        for found in [*(Found(path, (0, 0), "") for path in gone), *changed]:
            if found.path not in self._open and not self._is_private(found.path):
                self._stamps[found.path] = found.stamp
                self._lend(folder, found.path, found.text)

    def _lend_open(self, folder: str, file: str, document: TextDocument) -> None:
        text = document.snapshot.text
        if self._seen.get(file) is not text:  # every key comes by here
            self._seen[file] = text
            self._stamps.pop(file, None)  # when it is closed, what lies on the disk counts again
            is_read = not self._is_excluded(document.paths) and unread(document) is None
            self._lend(folder, file, valid(text) if is_read else "")

    def _lend(self, folder: str, file: str, text: str) -> None:
        kept = self._lent.get((folder, file))
        if text == (kept.text if kept else ""):
            return
        lend = Lend(workspace=folder, file=file, text=text)
        if text:
            self._lent[folder, file] = lend
        else:
            del self._lent[folder, file]
            self._stamps.pop(file, None)
            self._seen.pop(file, None)
        self._send(lend)

    def _take_back(self, is_meant: Callable[[str], bool]) -> None:
        for folder, file in [which for which in self._lent if is_meant(which[1])]:
            self._lend(folder, file, "")

    def _is_private(self, path: str) -> bool:
        return self._is_excluded(names_of(path))

    def _is_excluded(self, names: Iterable[str]) -> bool:
        return any(first_match(name, self._settings.context_excluded_globs) is not None for name in names)

    def _folder_of(self, file: str) -> str | None:
        """Returns the innermost workspace folder that holds a file."""
        folders = [os.path.realpath(path_of(uri)) for uri in self._folders() if uri.startswith("file:")]
        return max((folder for folder in folders if file.startswith(folder + os.sep)), key=len, default=None)


def _file(document: TextDocument) -> str | None:
    """Returns where the text of a document is kept, None for one that is in no folder."""
    return document.paths[-1] if document.uri.startswith("file:") and document.paths else None
