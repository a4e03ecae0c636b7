"""The engine host: one process that owns the model and answers any number of clients over a unix socket.

The event loop only reads, queues, cancels and answers; the model runs on the worker's thread. Requests run in the order
of arrival: that the newest request of a document wins is decided by the front end, which cancels the others.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
import os
import resource
import signal
import sys
import time
from pathlib import Path

import click
import msgspec

from midspan_engine.endpoint import Endpoint
from midspan_engine.errors import EngineError, InputError, MidspanError
from midspan_engine.framing import pack, read_request
from midspan_engine.protocol import (
    Cancel,
    Draft,
    EngineStatus,
    Failed,
    Fill,
    Filled,
    Forget,
    Reply,
    Request,
    Shutdown,
    StatusRequest,
)
from midspan_engine.worker import Job, Worker

logger = logging.getLogger(__name__)

MAX_UNREAD_BYTES = 16 * 2**20
"""Replies kept for a client that does not read: thousands of drafts of a full canvas; then the client is dropped."""

N_WAITING_CLIENTS = 1024
"""Clients that may connect while the loop is stalled by the import of torch; asyncio's default is 100, and beyond it a
connect fails. The kernel caps it (net.core.somaxconn).
"""

STOP_PATIENCE_S = 2.0
"""How long the end of the process waits for the denoising step in hand; a step takes well under a second."""


class Connection:
    """One client: its writer and the fills it waits for."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.jobs: dict[int, Job] = {}
        self._writer = writer

    def send(self, reply: Reply) -> None:
        """Sends a reply without ever waiting; a client that leaves too much unread is dropped."""
        if self._writer.is_closing():
            return
        if isinstance(reply, Failed):
            reply = msgspec.structs.replace(reply, message=_unicode(reply.message))
        self._writer.write(pack(reply))
        if self._writer.transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            logger.warning("dropped a client that does not read its replies")
            self.drop()

    def cancel(self, request: Cancel) -> None:
        """Answers the withdrawn fill at once; what the engine still says about it goes nowhere."""
        job = self.jobs.pop(request.id, None)
        if job is not None:
            job.cancel()
            self.send(Filled(id=request.id, silence="cancelled"))

    def on_draft(self, draft: Draft) -> None:
        if draft.id in self.jobs:
            self.send(draft)

    def drop(self) -> None:
        """Cancels whatever the client waits for and closes the connection, unsent replies included."""
        for job in self.jobs.values():
            job.cancel()
        self.jobs.clear()
        self._writer.transport.abort()


class Host:
    """Serves one checkpoint at one endpoint until it is told to stop or has had nothing to do for a while."""

    def __init__(self, endpoint: Endpoint, checkpoint: Path, idle_s: float) -> None:
        self._endpoint = endpoint
        self._checkpoint = checkpoint
        self._idle_s = idle_s
        self._worker = Worker(checkpoint, asyncio.get_running_loop())
        self._connections: dict[Connection, asyncio.Task[None] | None] = {}
        self._version = _version()
        self._n_fills = 0
        self._last_work = time.monotonic()
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Asks `serve` to return."""
        self._stopping.set()

    async def serve(self) -> bool:
        """Answers clients until stopped or idle, then removes the socket; False when the worker could not be ended."""
        listener = self._endpoint.listener
        server = await asyncio.start_unix_server(self._serve_client, sock=listener, backlog=N_WAITING_CLIENTS)
        self._worker.start()
        try:
            await self._until_done()
        finally:
            server.close()
            self._endpoint.close()
            tasks = [task for task in self._connections.values() if task is not None]
            for connection in self._connections:
                connection.drop()
            await asyncio.gather(*tasks, return_exceptions=True)
        return self._worker.stop(STOP_PATIENCE_S)

    async def _until_done(self) -> None:
        while not self._stopping.is_set():
            if not self._endpoint.is_intact():
                logger.warning("leaving: the socket was removed, so that no client finds this process any more")
                return
            if any(connection.jobs for connection in self._connections):
                self._last_work = time.monotonic()
            if time.monotonic() - self._last_work > self._idle_s:
                logger.info("leaving: nothing to do for %.1f minutes", self._idle_s / 60)
                return
            try:
                await asyncio.wait_for(self._stopping.wait(), timeout=min(1.0, self._idle_s / 2))
            except TimeoutError:
                continue

    async def _serve_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(writer)
        self._connections[connection] = asyncio.current_task()
        try:
            while (request := await read_request(reader)) is not None:
                try:
                    self._handle(connection, request)
                except InputError as error:
                    connection.send(Failed(id=getattr(request, "id", 0), message=str(error), is_input=True))
        except MidspanError as error:
            logger.warning("closed a connection: %s", error)
        except ConnectionError:
            pass  # the client vanished in the middle of something; the same as leaving
        finally:
            connection.drop()
            del self._connections[connection]

    def _handle(self, connection: Connection, request: Request) -> None:
        match request:
            case Fill():
                self._fill(connection, request)
            case Cancel():
                connection.cancel(request)
            case Forget():
                self._worker.forget(request)
            case StatusRequest():
                connection.send(self._status(request))
            case Shutdown():
                logger.info("leaving: a client asked for it")
                self.stop()

    def _fill(self, connection: Connection, request: Fill) -> None:
        if request.id in connection.jobs:
            raise EngineError(f"fill {request.id} was asked for twice; ids must be unique on a connection")

        def on_done(reply: Filled | Failed) -> None:
            if connection.jobs.get(request.id) is job:
                del connection.jobs[request.id]
                connection.send(reply)
            self._last_work = time.monotonic()

        job = Job(request, received=time.perf_counter(), on_draft=connection.on_draft, on_done=on_done)
        connection.jobs[request.id] = job
        self._n_fills += 1
        self._last_work = time.monotonic()
        self._worker.submit(job)

    def _status(self, request: StatusRequest) -> EngineStatus:
        engine, failure = self._worker.engine, self._worker.load_failure
        return EngineStatus(
            id=request.id,
            version=self._version,
            pid=os.getpid(),
            checkpoint=_unicode(str(self._checkpoint)),
            device=engine.device if engine else "",
            state=self._worker.state,
            error=_unicode(failure.message) if failure else None,
            rss_bytes=_rss_bytes(),
            n_parameters=engine.n_parameters if engine else 0,
            n_clients=len(self._connections),
            n_documents=engine.n_documents if engine else 0,
            n_fills=self._n_fills,
            languages=engine.languages if engine else (),
        )


def _unicode(text: str) -> str:
    """Returns a text that can be sent: the name of a folder need not be UTF-8, and Python keeps its bytes as halves."""
    return text.encode(errors="replace").decode()


def _version() -> str:
    try:
        return importlib.metadata.version("midspan")
    except importlib.metadata.PackageNotFoundError:  # run from a source tree that was not installed
        return "0"


def _rss_bytes() -> int:
    """Resident memory of this process; its highest value where Linux's /proc is missing."""
    try:
        n_pages = int(Path("/proc/self/statm").read_text().split()[1])
        return n_pages * resource.getpagesize()
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


async def _serve(endpoint: Endpoint, checkpoint: Path, idle_s: float) -> bool:
    host = Host(endpoint, checkpoint, idle_s)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, host.stop)
    return await host.serve()


@click.command()
@click.option("--socket", type=click.Path(path_type=Path), required=True, help="Unix socket to listen on.")
@click.option("--checkpoint", type=click.Path(path_type=Path), required=True, help="Folder of the model to serve.")
@click.option(
    "--idle-minutes",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="Exit after so long without a fill, which gives all memory back.",
)
def command(socket: Path, checkpoint: Path, idle_minutes: float) -> None:
    """Runs the resident engine that all editor windows share."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    endpoint = Endpoint.claim(socket.absolute())
    if endpoint is None:
        return  # another host won the race; its clients are served
    is_worker_ended = asyncio.run(_serve(endpoint, checkpoint.absolute(), idle_minutes * 60))
    if not is_worker_ended:
        # The worker is inside torch; ending the interpreter below a running thread would crash instead of exiting.
        logging.shutdown()
        os._exit(0)
