"""The engine host: one process that owns the model and answers any number of clients over a unix socket.

The event loop only reads, queues, cancels and answers; the model runs on the worker's thread.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import signal
import time
from collections import Counter
from pathlib import Path

import click
import msgspec

from midspan_engine.commands import WEIGHTS_VARIABLE
from midspan_engine.connection import Connection, unicode_of
from midspan_engine.endpoint import Endpoint
from midspan_engine.errors import EngineError, InputError, MidspanError
from midspan_engine.framing import read_request
from midspan_engine.gone_clients import GoneClients
from midspan_engine.job_queue import CANCELLED, CLOSED, GAVE_WAY, SUPERSEDED, Job, document_key
from midspan_engine.protocol import (
    Cancel,
    EngineStatus,
    Failed,
    Fill,
    Filled,
    Forget,
    Idle,
    Lend,
    Report,
    Request,
    Shutdown,
    StatusRequest,
    idle_seconds,
)
from midspan_engine.vitals import rss_bytes, version
from midspan_engine.watchdog import HANG_S, Watchdog
from midspan_engine.worker import BUSY, Worker

logger = logging.getLogger(__name__)

N_WAITING_CLIENTS = 1024
"""Clients that may connect while the loop is stalled by the import of torch; asyncio's default is 100, and beyond it a
connect fails. The kernel caps it (net.core.somaxconn).
"""

STOP_PATIENCE_S = 2.0
"""How long the end of the process waits for the denoising step in hand; a step takes well under a second."""

FAILED_IDLE_S = 20.0
"""How long a host stays that could not load its model: long enough to tell everybody who asks with the next keys, not
so long that an interpreter with torch (230 MB) lies about for nothing.
"""

TICK_S = 1.0
"""How often the host looks at itself."""

_FATES = {
    CANCELLED: "cancelled",
    CLOSED: "cancelled",
    SUPERSEDED: "superseded",
    GAVE_WAY: "superseded",
    BUSY: "expired",
}
"""Under which name a silence is counted; the others are the engine's own."""


class Host:
    """Serves one checkpoint at one endpoint until it is told to stop or has had nothing to do for a while."""

    def __init__(self, endpoint: Endpoint, checkpoint: Path, idle_s: float) -> None:
        self._endpoint = endpoint
        self._checkpoint = checkpoint
        self._idle_s = idle_s
        self._worker = Worker(checkpoint, asyncio.get_running_loop())
        self._connections: dict[Connection, asyncio.Task[None] | None] = {}
        self._numbers = itertools.count(1)
        self._version = version()
        self._counts: Counter[str] = Counter()
        self._gone = GoneClients()
        self._n_fills = 0
        self._last_failure = "the engine before this one was killed or crashed" if endpoint.is_inherited else None
        self._started = self._last_work = time.monotonic()
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
            for job in [job for connection in self._connections for job in connection.jobs.values()]:
                job.cancel()
            is_ended = await asyncio.to_thread(self._worker.stop, STOP_PATIENCE_S)
            # Last: to a client the end of its connection is the end of the engine.
            tasks = [task for task in self._connections.values() if task is not None]
            await asyncio.gather(*(connection.leave() for connection in list(self._connections)))
            await asyncio.gather(*tasks, return_exceptions=True)
        return is_ended

    async def _until_done(self) -> None:
        watchdog = Watchdog(TICK_S)
        while not self._stopping.is_set():
            if not self._endpoint.is_intact():
                logger.warning("leaving: the socket was removed, so that no client finds this process any more")
                return
            # A checkpoint that is loaded again takes its time, in which no job makes a step.
            if watchdog.is_hanging(self._worker.queue.running if self._worker.state == "busy" else ()):
                self._fail_all(f"the engine hung: no step in {HANG_S:.0f} s; the next request restarts it")
                return
            if self._worker.state == "loading" or any(connection.jobs for connection in self._connections):
                self._last_work = time.monotonic()
            idle_s = min(self._idle_s, FAILED_IDLE_S) if self._worker.state == "failed" else self._idle_s
            if time.monotonic() - self._last_work > idle_s:
                logger.info("leaving: nothing to do for %.1f minutes", idle_s / 60)
                return
            try:
                await asyncio.wait_for(self._stopping.wait(), timeout=min(TICK_S, idle_s / 2))
            except TimeoutError:
                continue

    async def _serve_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(next(self._numbers), writer)
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
            for job in list(connection.jobs.values()):
                self._worker.withdraw(job)
            connection.drop()
            self._worker.forget(document_key(connection.number, document) for document in connection.documents)
            self._worker.close_workspaces(connection.workspaces)
            self._worker.queue.forget_client(connection.number)
            del self._connections[connection]
            self._gone.add(connection.status)

    def _handle(self, connection: Connection, request: Request) -> None:
        match request:
            case Fill():
                self._fill(connection, request)
            case Cancel():
                job = connection.jobs.get(request.id)
                if job is not None:
                    self._worker.withdraw(job)
            case Forget():
                connection.documents.discard(request.document)
                self._worker.forget([document_key(connection.number, request.document)])
            case Lend():
                self._lend(connection, request)
            case StatusRequest():
                connection.name = request.client or connection.name
                connection.send(self._status(request))
            case Report():
                connection.report = request
            case Idle():
                self._idle_s = idle_seconds(request.minutes)
            case Shutdown():
                logger.info("leaving: a client asked for it")
                self.stop()

    def _lend(self, connection: Connection, file: Lend) -> None:
        workspace = document_key(connection.number, file.workspace)
        connection.workspaces.add(workspace)
        self._worker.lend(msgspec.structs.replace(file, workspace=workspace))

    def _fill(self, connection: Connection, request: Fill) -> None:
        if request.id in connection.jobs:
            raise EngineError(f"fill {request.id} was asked for twice; ids must be unique on a connection")

        def on_done(reply: Filled | Failed) -> None:
            connection.jobs.pop(request.id, None)  # a client that was dropped waits for nothing
            connection.send(reply)
            self._note(reply)

        job = Job(
            request,
            client=connection.number,
            received=time.perf_counter(),
            on_draft=connection.on_draft,
            on_done=on_done,
        )
        connection.jobs[request.id] = job
        connection.documents.add(request.document)
        connection.n_fills += 1
        self._n_fills += 1
        self._last_work = time.monotonic()
        self._worker.submit(job)

    def _note(self, reply: Filled | Failed) -> None:
        """Counts an answer; after a final one, nobody is left to wait in vain."""
        self._last_work = time.monotonic()
        if isinstance(reply, Filled):
            if reply.stats.carried_steps:
                self._counts["carried on"] += 1
            self._counts["suggested" if reply.candidates else _FATES.get(reply.silence or "", "silent")] += 1
            return
        self._counts["failed"] += 1
        if not reply.is_input:
            self._last_failure = reply.message
        if reply.is_final and not self._stopping.is_set():
            self._fail_all(reply.message)

    def _fail_all(self, reason: str) -> None:
        """Answers everybody who waits, and ends the host: another process starts with a model that works."""
        logger.error("leaving: %s", reason)
        self.stop()
        for connection in list(self._connections):
            for job in list(connection.jobs.values()):
                job.cancel()
                job.finish(Failed(id=job.request.id, message=reason, is_final=True))

    def _status(self, request: StatusRequest) -> EngineStatus:
        worker = self._worker
        engine, failure = worker.engine, worker.load_failure
        clients = tuple(connection.status for connection in self._connections)
        return EngineStatus(
            id=request.id,
            version=self._version,
            pid=os.getpid(),
            checkpoint=unicode_of(str(self._checkpoint)),
            device=engine.device if engine else "",
            state=worker.state,
            error=unicode_of(failure.message) if failure else None,
            progress=worker.progress,
            weights=unicode_of(os.environ.get(WEIGHTS_VARIABLE) or "auto"),
            budget=unicode_of(worker.budget),
            loading_quiet_s=worker.loading_quiet_s,
            rss_bytes=rss_bytes(),
            device_bytes=worker.device_bytes,
            cache_bytes=engine.prefixes.n_bytes if engine else 0,
            uptime_s=time.monotonic() - self._started,
            idle_s=self._idle_s,
            last_failure=unicode_of(self._last_failure) if self._last_failure else None,
            n_parameters=engine.n_parameters if engine else 0,
            n_documents=engine.n_documents if engine else 0,
            n_files=engine.n_files if engine else 0,
            is_up_to_date=worker.is_up_to_date,
            n_fills=self._n_fills,
            n_waiting=len(worker.queue),
            counts=dict(self._counts) | worker.counts,
            clients=clients,
            gone=self._gone.counts(clients),
            languages=engine.languages if engine else (),
            instructions=engine is not None and engine.infill.instructions,
        )


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
    required=True,
    help="Exit after so long without a fill, which gives all memory back.",
)
def command(socket: Path, checkpoint: Path, idle_minutes: float) -> None:
    """Runs the resident engine that all editor windows share."""
    idle_s = idle_seconds(idle_minutes)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    endpoint = Endpoint.claim(socket.absolute())
    if endpoint is None:
        return  # another host won the race; its clients are served
    is_worker_ended = asyncio.run(_serve(endpoint, checkpoint.absolute(), idle_s))
    endpoint.release()
    if not is_worker_ended:
        # The worker is inside torch; ending the interpreter below a running thread would crash instead of exiting.
        logging.shutdown()
        os._exit(0)
