"""The one thread that touches the model.

Jobs come in through a queue and run in order; replies go back to the event loop through `call_soon_threadsafe`. The
engine is imported and loaded on the thread, so that the process answers a status before torch is there.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from midspan_engine.errors import Cancelled, CheckpointError, InputError, MidspanError
from midspan_engine.protocol import Draft, Failed, Fill, Filled, Forget

if TYPE_CHECKING:
    from midspan_engine.engine import Engine

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Job:
    """One fill on its way through the worker."""

    def __init__(
        self,
        request: Fill,
        *,
        received: float,
        on_draft: Callable[[Draft], None],
        on_done: Callable[[Filled | Failed], None],
    ) -> None:
        self.request = request
        self.received = received
        """Seconds of `time.perf_counter` when the request arrived."""
        self.on_draft = on_draft
        """Called on the event loop."""
        self.has_begun = False
        self._on_done = on_done
        self._is_done = False
        self._cancelled = threading.Event()

    def finish(self, reply: Filled | Failed) -> None:
        """Hands over the answer, on the event loop; the first one counts."""
        if not self._is_done:
            self._is_done = True
            self._on_done(reply)

    def cancel(self) -> None:
        """Tells the engine to stop at its next denoising step."""
        self._cancelled.set()

    def is_cancelled(self) -> bool:
        return self._cancelled.is_set()


class Worker:
    """Loads a checkpoint and fills gaps, one job at a time, on a thread of its own."""

    def __init__(self, checkpoint: Path, loop: asyncio.AbstractEventLoop) -> None:
        self.engine: Engine | None = None
        self.load_failure: Failed | None = None
        """Remembered and told to every later request until the folder changes; its id is 0."""
        self._checkpoint = checkpoint
        self._loop = loop
        self._inbox: queue.SimpleQueue[Job | Forget | None] = queue.SimpleQueue()
        self._is_filling = False
        self._loaded = 0.0
        self._tried: list[tuple[str, int, int]] = []
        # A daemon: an interpreter that ends while torch is still being imported must not wait for it.
        self._thread = threading.Thread(target=self._run, name="midspan-model", daemon=True)

    @property
    def state(self) -> str:
        """What the worker is at: "loading", "ready", "busy" or "failed"."""
        if self.load_failure is not None:
            return "failed"
        if self.engine is None:
            return "loading"
        return "busy" if self._is_filling or not self._inbox.empty() else "ready"

    def start(self) -> None:
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Queues a fill; its `on_done` is called exactly once unless the loop ends before.

        Behind a long fill of somebody else it is answered at its deadline all the same.
        """
        self._inbox.put(job)
        if self.engine is not None and job.request.deadline_ms is not None:
            self._loop.call_later(job.request.deadline_ms / 1e3, self._expire, job)

    def _expire(self, job: Job) -> None:
        if not job.has_begun:
            job.cancel()
            job.finish(Filled(id=job.request.id, silence="the engine was busy with another request until the deadline"))

    def forget(self, request: Forget) -> None:
        """Queues the dropping of a document, behind the fills already asked for."""
        self._inbox.put(request)

    def stop(self, patience_s: float) -> bool:
        """Ends the thread after the job in hand; False when it is still busy after `patience_s`."""
        self._inbox.put(None)
        self._thread.join(patience_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        self._load()
        while (item := self._inbox.get()) is not None:
            if isinstance(item, Job):
                item.has_begun = True
                self._is_filling = True
                reply = self._answer(item)
                self._is_filling = False
                self._post(item.finish, reply)
            elif self.engine is not None:
                self._forget(self.engine, item)

    def _load(self) -> None:
        """Loads the engine or remembers why that is impossible."""
        self.load_failure = None
        self._tried = _fingerprint(self._checkpoint)
        try:
            if not self._checkpoint.is_dir():
                raise CheckpointError(
                    f"there is no checkpoint folder at {self._checkpoint}; point MIDSPAN_CHECKPOINT at a folder that "
                    "holds config.json, tokenizer.json and *.safetensors, or unset it to use the embedded checkpoint"
                )
            # Torch takes seconds to import; only this thread needs it.
            import torch

            from midspan_engine.cpu import cpu_threads
            from midspan_engine.engine import Engine

            torch.set_num_threads(cpu_threads())
            self.engine = Engine.load(self._checkpoint)
            self._loaded = time.perf_counter()
            logger.info("ready: %s on %s", self._checkpoint, self.engine.device)
        except MidspanError as error:
            logger.error("the checkpoint cannot be loaded: %s", error)
            self.load_failure = Failed(id=0, message=str(error), is_input=isinstance(error, InputError))
        except Exception as error:  # the thread must live on to tell every client
            logger.exception("the engine cannot be loaded")
            message = f"the engine cannot be loaded ({type(error).__name__}: {error}); the engine's log says more"
            self.load_failure = Failed(id=0, message=message)

    def _answer(self, job: Job) -> Filled | Failed:
        request = job.request
        if job.is_cancelled():
            return _cancelled(request)
        if self.engine is None and self._tried != _fingerprint(self._checkpoint):
            self._load()  # the folder was mended since
        if self.engine is None:
            assert self.load_failure is not None, "the engine is either loaded or failed before the first job"
            return Failed(id=request.id, message=self.load_failure.message, is_input=self.load_failure.is_input)
        try:
            return self.engine.fill(
                request,
                received=max(job.received, self._loaded),  # a deadline is not spent on loading
                is_cancelled=job.is_cancelled,
                on_draft=(lambda draft: self._post(job.on_draft, draft)) if request.watch else None,
            )
        except Cancelled:
            return _cancelled(request)
        except MidspanError as error:
            return Failed(id=request.id, message=str(error), is_input=isinstance(error, InputError))
        except Exception as error:  # one bad request must not take the model from everybody
            _log_unexpected(f"fill {request.id}", error)
            kind = type(error).__name__
            return Failed(id=request.id, message=f"the engine failed at this request ({kind}); its log says where")

    def _forget(self, engine: Engine, request: Forget) -> None:
        try:
            engine.forget(request.document)
        except Exception as error:
            _log_unexpected("forget", error)

    def _post(self, callback: Callable[[T], None], message: T) -> None:
        self._loop.call_soon_threadsafe(callback, message)


def _fingerprint(folder: Path) -> list[tuple[str, int, int]]:
    """Returns name, time and size of a folder's files: equal as long as nobody touched them."""
    try:
        stats = [(entry.name, entry.stat()) for entry in os.scandir(folder)]
    except OSError:
        return []
    return sorted((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)


def _cancelled(request: Fill) -> Filled:
    return Filled(id=request.id, silence="cancelled")


def _log_unexpected(what: str, error: Exception) -> None:
    """Logs where an error came from; its own words only at debug level, because they may quote the user's source."""
    trace = "".join(traceback.format_tb(error.__traceback__))
    logger.error("%s raised %s\n%s", what, type(error).__name__, trace)
    logger.debug("%s: %s", what, error)
