"""One client of the engine host: its writer, the fills that it waits for, and who it is."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

import msgspec

from midspan_engine.framing import pack, peer_pid
from midspan_engine.job_queue import Job
from midspan_engine.protocol import ClientStatus, Draft, Failed, Reply, Report

logger = logging.getLogger(__name__)

MAX_UNREAD_BYTES = 16 * 2**20
"""Replies kept for a client that does not read: thousands of drafts of a full canvas; then the client is dropped."""

LAST_WORDS_S = 1.0
"""How long a client may take to read what the host says before it leaves."""


class Connection:
    """Sends replies to one client without ever waiting for it."""

    def __init__(self, number: int, writer: asyncio.StreamWriter) -> None:
        self.number = number
        """Tells clients apart, as long as the host lives."""
        self.name = ""
        self.jobs: dict[int, Job] = {}
        self.documents: set[str] = set()
        """Those that the engine may keep something for."""
        self.workspaces: set[str] = set()
        """Those that it has lent files to, as the worker calls them."""
        self.n_fills = 0
        self.report = Report()
        self._pid = peer_pid(writer.get_extra_info("socket"))
        self._since = time.monotonic()
        self._writer = writer

    @property
    def status(self) -> ClientStatus:
        """What others are told of this client."""
        return ClientStatus(
            name=self.name,
            pid=self._pid,
            connected_s=time.monotonic() - self._since,
            n_fills=self.n_fills,
            n_waiting=len(self.jobs),
            report=self.report,
        )

    def send(self, reply: Reply) -> None:
        """Sends a reply; a client that leaves too much unread is dropped."""
        if self._writer.is_closing():
            return
        if isinstance(reply, Failed):
            reply = msgspec.structs.replace(reply, message=unicode_of(reply.message))
        self._writer.write(pack(reply))
        if self._writer.transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            logger.warning("dropped a client that does not read its replies")
            self.drop()

    def on_draft(self, draft: Draft) -> None:
        """Sends a draft, unless its fill was answered meanwhile."""
        if draft.id in self.jobs:
            self.send(draft)

    def drop(self) -> None:
        """Cancels whatever the client waits for and closes the connection, unsent replies included."""
        for job in self.jobs.values():
            job.cancel()
        self.jobs.clear()
        self._writer.transport.abort()

    async def leave(self) -> None:
        """Closes the connection once the client has read its replies, or after a moment."""
        self._writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            await asyncio.wait_for(self._writer.wait_closed(), LAST_WORDS_S)
        self.drop()


def unicode_of(text: str) -> str:
    """Returns a text that can be sent: the name of a folder need not be UTF-8, and Python keeps its bytes as halves."""
    return text.encode(errors="replace").decode()
