"""The one thread that touches the model.

Jobs come in through a queue and run in order; replies go back to the event loop through `call_soon_threadsafe`. The
engine is imported and loaded on the thread, so that the process answers a status before torch is there.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from midspan_engine.errors import Cancelled, CheckpointError, InputError, MidspanError
from midspan_engine.job_queue import CANCELLED, CLOSED, Job, JobQueue
from midspan_engine.protocol import Failed, Fill, Filled
from midspan_engine.trouble import failed, is_out_of_memory, log_unexpected

if TYPE_CHECKING:
    from midspan_engine.engine import Engine

T = TypeVar("T")

logger = logging.getLogger(__name__)

BUSY = "the engine was busy with another request until the deadline"

LOOK_S = 1.0
"""How often the checkpoint's folder is looked at. It is read again once two looks agree, and not while files are still
being copied into it.
"""

PARTS = ("*config.json", "tokenizer.json", "*.jinja", "model*.safetensors", "model.safetensors.index.json", "*.gguf")
"""Names of what a checkpoint consists of. A training run may write its own files beside them all the time."""

_IMPORTED = 0.4
"""Share of the progress when torch is imported. Chosen: nearly all of the time of a small checkpoint, little of a large
one's."""


class Worker:
    """Loads a checkpoint and fills gaps, one job at a time, on a thread of its own."""

    def __init__(self, checkpoint: Path, loop: asyncio.AbstractEventLoop) -> None:
        self.engine: Engine | None = None
        self.load_failure: Failed | None = None
        """Remembered and told to every later request until the folder changes; its id is 0."""
        self.progress = 0.0
        """How much of the loading is done, 0..1."""
        self.budget = ""
        """What memory the model takes, in one line; known before its weights are read."""
        self._progressed = time.monotonic()
        self.n_retries = 0
        """Fills that ran out of memory and were tried again."""
        self.queue = JobQueue()
        self._checkpoint = checkpoint
        self._loop = loop
        self._closed_documents: list[str] = []
        self._is_stopping = False
        self._loaded = 0.0
        self._used: list[tuple[str, int, int]] = []
        self._seen: list[tuple[str, int, int]] = []
        self._looked = 0.0
        # A daemon: an interpreter that ends while torch is still being imported must not wait for it.
        self._thread = threading.Thread(target=self._run, name="midspan-model", daemon=True)

    @property
    def state(self) -> str:
        """What the worker is at: "loading", "ready", "busy" or "failed"."""
        if self.load_failure is not None:
            return "failed"
        if self.engine is None:
            return "loading"
        return "busy" if self.queue.running is not None or len(self.queue) else "ready"

    @property
    def loading_quiet_s(self) -> float:
        """Seconds since the loading got further; 0 when nothing is being loaded."""
        return time.monotonic() - self._progressed if self.state == "loading" else 0.0

    @property
    def device_bytes(self) -> int:
        """Memory that torch holds on an accelerator."""
        if self.engine is None or not self.engine.device.startswith("cuda"):
            return 0
        import torch  # there is an engine, so it is imported already

        return torch.cuda.memory_reserved()

    def start(self) -> None:
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Queues a fill; its `on_done` is called exactly once unless the loop ends before.

        Older fills that it replaces are answered at once. Behind a long fill of somebody else it is answered at its
        deadline all the same.
        """
        for old, reason in self.queue.put(job):
            old.end(reason)
        if self.engine is not None and job.request.deadline_ms is not None:
            self._loop.call_later(job.request.deadline_ms / 1e3, self._expire, job)

    def withdraw(self, job: Job, silence: str = CANCELLED) -> None:
        """Takes a fill back and answers it at once."""
        self.queue.discard(job)
        job.end(silence)

    def _expire(self, job: Job) -> None:
        if self.queue.discard(job):
            job.end(BUSY)

    def forget(self, documents: Iterable[str]) -> None:
        """Ends the fills of documents that were closed, and drops what is kept for them before the next fill begins."""
        for document in documents:
            for job in self.queue.of_document(document):
                self.withdraw(job, CLOSED)
            self._closed_documents.append(document)
        self.queue.wake()

    def stop(self, patience_s: float) -> bool:
        """Ends the thread after the job in hand; False when it is still busy after `patience_s`."""
        self._is_stopping = True
        self.queue.wake()
        self._thread.join(patience_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        self._load()
        while not self._is_stopping:
            job = self.queue.take(LOOK_S)
            self._tidy(job is not None)
            if job is None:
                continue
            self._post(job.finish, self._answer(job))

    def _tidy(self, is_asked: bool) -> None:
        """Drops what closed documents have left, and loads a checkpoint that was replaced."""
        while self._closed_documents:
            document = self._closed_documents.pop()
            try:
                if self.engine is not None:
                    self.engine.forget(document)
            except Exception as error:
                log_unexpected("forget", error)
        if self.engine is not None and time.monotonic() - self._looked < LOOK_S:
            return
        if self.engine is None and not is_asked:
            return  # it is read again when somebody asks for it
        self._looked = time.monotonic()
        found = _fingerprint(self._checkpoint)
        is_settled = found == self._seen or self.engine is None
        self._seen = found
        # Without its folder, as on a disk that was taken away, a loaded model serves on.
        if found and found != self._used and is_settled:
            logger.info("the checkpoint has changed: loading it again")
            self._load()

    def _load(self) -> None:
        """Loads the engine or remembers why that is impossible."""
        self.engine = self.load_failure = None  # the memory of the old model is free before the new one takes its own
        self._note_progress(0.0)
        self.budget = ""
        self._used = self._seen = _fingerprint(self._checkpoint)
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
            self._note_progress(_IMPORTED)
            self.engine = Engine.load(self._checkpoint, self._note_weights, self._note_budget)
            self._loaded = time.perf_counter()
            self._note_progress(1.0)
            logger.info("ready: %s on %s", self._checkpoint, self.engine.device)
        except MidspanError as error:
            logger.error("the checkpoint cannot be loaded: %s", error)
            self.load_failure = Failed(id=0, message=str(error), is_input=isinstance(error, InputError))
        except Exception as error:  # the thread must live on to tell every client
            logger.exception("the engine cannot be loaded")
            message = f"the engine cannot be loaded ({type(error).__name__}: {error}); the engine's log says more"
            if is_out_of_memory(error):
                message = f"there is not enough memory to load {self._checkpoint}; free some, or use a smaller model"
            self.load_failure = Failed(id=0, message=message)

    def _note_weights(self, share: float) -> None:
        self._note_progress(_IMPORTED + (1 - _IMPORTED) * share)

    def _note_budget(self, told: str) -> None:
        self.budget = told
        logger.info("memory: %s", told)

    def _note_progress(self, progress: float) -> None:
        self.progress, self._progressed = progress, time.monotonic()

    def _answer(self, job: Job) -> Filled | Failed:
        id = job.request.id
        if job.check_in():
            return Filled(id=id, silence=CANCELLED)
        if self.engine is None:
            assert self.load_failure is not None, "the engine is either loaded or failed before the first job"
            return msgspec.structs.replace(self.load_failure, id=id)
        try:
            return self._fill(self.engine, job)
        except Cancelled:
            return Filled(id=id, silence=CANCELLED)
        except Exception as error:  # one bad request must not take the model from everybody
            return failed(id, error)

    def _fill(self, engine: Engine, job: Job) -> Filled:
        """Fills, and once more with empty caches when memory does not suffice."""
        request = msgspec.structs.replace(job.request, document=job.document)
        try:
            return self._run_engine(engine, job, request)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        # Out of the handler: there the error's frames would still hold the tensors.
        logger.warning("out of memory at fill %d: trying again with empty caches", request.id)
        self.n_retries += 1
        engine.drop_caches()
        return self._run_engine(engine, job, request)

    def _run_engine(self, engine: Engine, job: Job, request: Fill) -> Filled:
        from midspan_engine.edit import revise  # there is an engine, so torch is imported already

        between = partial(self._let_through, job)
        serve = partial(revise, engine, between_canvases=between) if request.held else engine.fill
        return serve(
            request,
            received=max(job.received, self._loaded),  # a deadline is not spent on loading
            is_cancelled=job.check_in,
            on_draft=(lambda draft: self._post(job.on_draft, draft)) if request.watch else None,
        )

    def _let_through(self, edit: Job) -> None:
        """Answers the fills that wait by now: an edit of many canvases takes minutes, and typing goes on meanwhile."""
        now = time.perf_counter()
        while (job := self.queue.interrupt(edit, now)) is not None:
            self._post(job.finish, self._answer(job))

    def _post(self, callback: Callable[[T], None], message: T) -> None:
        self._loop.call_soon_threadsafe(callback, message)


def _fingerprint(folder: Path) -> list[tuple[str, int, int]]:
    """Returns name, time and size of the files that a checkpoint consists of: equal as long as nobody touched them."""
    try:
        files = [entry for entry in os.scandir(folder) if any(fnmatch(entry.name, part) for part in PARTS)]
        return sorted((file.name, file.stat().st_mtime_ns, file.stat().st_size) for file in files)
    except OSError:
        return []
