"""Messages of the Language Server Protocol over the pipes that an editor opened: a header with the length, then JSON.

Both pipes are driven by the event loop. A thread that waits for stdin would keep the process alive after `exit`, and
a blocking stdout would let a client that does not read stop everything else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import stat
import sys
from typing import BinaryIO

from midspan_engine.errors import InputError

logger = logging.getLogger(__name__)

MAX_BODY_BYTES = 128 * 2**20
"""Longer messages are dropped unread: a file of that size is not completed anyway (`text.MAX_CHARACTERS`)."""
MAX_SKIPPED_BYTES = 2**31
"""A longer message is never sent: V8, the engine below VS Code, ends strings at 2**29 UTF-16 units of up to 3 bytes."""
CLIENT_POLL_S = 0.5
"""How often a client's process is looked for where the system does not tell of its end: it is noticed in a second."""
READ_CHUNK = 2**20
FLUSH_TIMEOUT_S = 1.0
"""How long a client may take to read our last words."""


class Connection:
    """Holds the two pipes of one client. The end of either is the end of both."""

    def __init__(self, reader: asyncio.StreamReader, transport: asyncio.WriteTransport, pipe: _Outgoing) -> None:
        self._reader = reader
        self._transport = transport
        self._pipe = pipe
        self._watching: asyncio.Task[None] | None = None
        self._has_ended = False
        """Whether the client's process is known to have ended: what it still had to say is of no use."""

    async def read(self) -> bytes | None:
        """Returns the body of the next message; None once the client is gone.

        Raises InputError for a header that cannot be true: where the next message starts is then unknown.
        """
        n_body: int | None = None
        while not self._has_ended:
            try:
                line = await self._reader.readline()
            except ValueError:
                logger.warning("skipped input that is no LSP message")
                continue
            if not line:
                return None
            name, _, value = line.partition(b":")
            if name.strip().lower() == b"content-length" and value.strip().isdigit():
                n_body = _length(value.strip())
            elif not line.strip() and n_body is not None:
                body = await self._body(n_body)
                if body is not None:
                    return body
                n_body = None
        return None

    async def _body(self, n: int) -> bytes | None:
        """Returns a body of n bytes, b"" for a client that left inside it, None for one that is too long."""
        try:
            if n <= MAX_BODY_BYTES:
                return await self._reader.readexactly(n)
            logger.warning("dropped a message of %d bytes; at most %d are read", n, MAX_BODY_BYTES)
            while n > 0:
                n -= len(await self._reader.readexactly(min(n, READ_CHUNK)))
            return None
        except asyncio.IncompleteReadError:
            return None

    def end_with(self, pid: int) -> None:
        """Ends the connection when the client's process ends: another child of it may hold the pipes open.

        A process that is not there is left alone; it runs on another machine or in another container.
        """
        if self._watching is None and _is_alive(pid):
            self._watching = asyncio.create_task(self._watch(pid))

    async def _watch(self, pid: int) -> None:
        await _process_end(pid)
        logger.info("leaving: the client's process has ended")
        self._has_ended = True
        self._transport.abort()  # whoever holds the pipe now does not read our last words
        self._reader.feed_eof()

    def write(self, data: bytes) -> None:
        """Sends bytes; those for a client that is gone are dropped."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        """Closes the outgoing pipe once it has taken what was written."""
        self._transport.close()

    async def flush(self) -> None:
        """Closes, and waits a moment for a client that reads slowly."""
        if self._watching is not None:
            self._watching.cancel()
        self.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._pipe.lost.wait(), FLUSH_TIMEOUT_S)


class _Outgoing(asyncio.BaseProtocol):
    """Notices that the client stopped reading, and ends the incoming side with it."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self.lost = asyncio.Event()
        self._reader = reader

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()
        self._reader.feed_eof()


async def open_stdio() -> Connection:
    """Returns the connection of this process's stdin and stdout. Raises InputError where they are not pipes."""
    for stream in (sys.stdin, sys.stdout):
        if stream is None or not _is_pipe(stream.fileno()):
            raise InputError("the language server talks over pipes, not files or devices; let an editor start it")
    return await open_pipes(sys.stdin.buffer, sys.stdout.buffer)


async def open_pipes(incoming: BinaryIO, outgoing: BinaryIO) -> Connection:
    """Returns the connection of two pipes, which it closes."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=READ_CHUNK)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), incoming)
    transport, pipe = await loop.connect_write_pipe(lambda: _Outgoing(reader), outgoing)
    return Connection(reader, transport, pipe)


async def _process_end(pid: int) -> None:
    """Returns when a process that is no child of ours has ended."""
    try:
        fd = os.pidfd_open(pid)
    except (AttributeError, OSError):  # not Linux, an old one, or the process has ended
        while _is_alive(pid):
            await asyncio.sleep(CLIENT_POLL_S)
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(fd, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(fd)
        os.close(fd)


def _is_alive(pid: int) -> bool:
    if pid <= 0:
        return False  # these mean groups of processes
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True  # somebody else's process is a process
    return True


def _length(digits: bytes) -> int:
    """Returns the length that a header announces. Raises InputError for one beyond MAX_SKIPPED_BYTES."""
    # int() refuses thousands of digits with an error of its own.
    if len(digits) > len(str(MAX_SKIPPED_BYTES)) or int(digits) > MAX_SKIPPED_BYTES:
        raise InputError(
            f"a header announces a message of more than {MAX_SKIPPED_BYTES} bytes; start the server again and report "
            "this to the makers of the editor"
        )
    return int(digits)


def _is_pipe(fd: int) -> bool:
    """Says whether the event loop can watch a descriptor: asyncio accepts /dev/null too, and then hangs."""
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd)
