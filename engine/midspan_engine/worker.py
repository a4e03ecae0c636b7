"""The one thread that touches the model.

Jobs come in through a queue and run in order, where several people type some side by side; replies go back to the event
loop through `call_soon_threadsafe`. The engine is imported and loaded on the thread, so that the process answers a
status before torch is there.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from midspan_engine.checkpoint_files import CheckpointFiles
from midspan_engine.errors import Cancelled, CheckpointError, InputError, MidspanError
from midspan_engine.job_queue import CANCELLED, CLOSED, Job, JobQueue, document_key
from midspan_engine.lent_files import LentFiles
from midspan_engine.protocol import Failed, Fill, Filled, Lend
from midspan_engine.trouble import failed, is_out_of_memory, log_unexpected

if TYPE_CHECKING:
    from midspan_engine.engine import Engine
    from midspan_engine.passes import Passes

T = TypeVar("T")

logger = logging.getLogger(__name__)

BUSY = "the engine was busy with another request until the deadline"

_IMPORTED = 0.4
"""Share of the progress when torch is imported. Chosen: nearly all of the time of a small checkpoint, little of a large
one's."""


class Worker:
    """Loads a checkpoint and fills gaps on a thread of its own."""

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
        self.n_shared_passes = 0
        """Decoder passes that were made for more than one fill."""
        self.queue = JobQueue()
        self._checkpoint = checkpoint
        self._loop = loop
        self._closed_documents: list[str] = []
        self.lent = LentFiles()
        self._is_stopping = False
        self._loaded = 0.0
        self._files = CheckpointFiles(checkpoint)
        # A daemon: an interpreter that ends while torch is still being imported must not wait for it.
        self._thread = threading.Thread(target=self._run, name="midspan-model", daemon=True)

    @property
    def state(self) -> str:
        """What the worker is at: "loading", "ready", "busy" or "failed"."""
        if self.load_failure is not None:
            return "failed"
        if self.engine is None:
            return "loading"
        return "busy" if self.queue.running or len(self.queue) else "ready"

    @property
    def loading_quiet_s(self) -> float:
        """Seconds since the loading got further; 0 when nothing is being loaded."""
        return time.monotonic() - self._progressed if self.state == "loading" else 0.0

    @property
    def counts(self) -> dict[str, int]:
        """What there is to count of the model's own work, by name."""
        counts = {"retried": self.n_retries, "passes shared": self.n_shared_passes}
        return {name: count for name, count in counts.items() if count}

    @property
    def is_up_to_date(self) -> bool:
        """Whether the engine looks at everything that was lent."""
        return self.lent.n_news == 0 and (self.engine is None or self.engine.is_settled)

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

    def lend(self, lend: Lend) -> None:
        """Takes a file into its workspace when there is nothing else to do, out of it before the next fill."""
        self.lent.put(lend)
        self.queue.wake()

    def close_workspaces(self, workspaces: Iterable[str]) -> None:
        """Takes back what was lent to workspaces before the next fill."""
        self.lent.close(workspaces)
        self.queue.wake()

    def stop(self, patience_s: float) -> bool:
        """Ends the thread after the job in hand; False when it is still busy after `patience_s`."""
        self._is_stopping = True
        self.queue.wake()
        self._thread.join(patience_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        self._load()
        is_at_work = True
        while not self._is_stopping:
            job = self.queue.take(0 if is_at_work else CheckpointFiles.LOOK_S)
            self._tidy(job is not None)
            if job is not None:
                self._serve(job)
            is_at_work = self._take_in() if job is None else is_at_work

    def _serve(self, first: Job) -> None:
        """Answers a job, and those that come to share its passes meanwhile."""
        if (engine := self.engine) is None:
            assert self.load_failure is not None, "the engine is either loaded or failed before the first job"
            self._finish(first, msgspec.structs.replace(self.load_failure, id=first.request.id))
            return
        from midspan_engine.rows import Rows  # there is an engine, so torch is imported already

        rows = Rows(engine.model, self._finish)
        rows.add(first, self._answer(engine, first))
        while len(rows):
            while not self._is_untidy and (job := self.queue.join(rows.n_most)) is not None:
                rows.add(job, self._answer(engine, job))
            rows.advance()
        self.n_shared_passes += rows.n_shared

    @property
    def _is_untidy(self) -> bool:
        """Whether there is something to do for which no fill may be in hand: nobody joins those that are."""
        return self._is_stopping or bool(self._closed_documents) or self._files.is_look_due

    def _tidy(self, is_asked: bool) -> None:
        """Drops what nobody needs any more, and loads a checkpoint that was replaced."""
        self._take_out()
        while self._closed_documents:
            document = self._closed_documents.pop()
            try:
                if self.engine is not None:
                    self.engine.forget(document)
            except Exception as error:
                log_unexpected("forget", error)
        has_failed = self.engine is None  # then it is read again when somebody asks for it
        is_due = is_asked if has_failed else self._files.is_look_due
        if is_due and self._files.have_changed(is_urgent=has_failed):
            logger.info("the checkpoint has changed: loading it again")
            self._load()

    def _take_in(self) -> bool:
        """Takes in one file that was lent, or makes a workspace ready; False when there is nothing to do."""
        if (engine := self.engine) is None:
            return False
        lend = self.lent.next()
        try:
            if lend is None:
                return engine.settle_workspaces()
            engine.lend(lend)
        except Exception as error:
            log_unexpected("lend", error)
        return True

    def _take_out(self) -> None:
        """Takes out what clients have taken back: nobody is to see it any more."""
        for lend in self.lent.withdrawn():
            if self.engine is not None:
                self.engine.lend(lend)

    def _load(self) -> None:
        """Loads the engine or remembers why that is impossible."""
        self.engine = self.load_failure = None  # the memory of the old model is free before the new one takes its own
        self._note_progress(0.0)
        self.budget = ""
        self._files.use()
        try:
            if not self._checkpoint.is_dir():
                raise CheckpointError(
                    f"there is no checkpoint folder at {self._checkpoint}; give a folder that holds config.json, "
                    "tokenizer.json and *.safetensors (--checkpoint, the setting `checkpoint` or MIDSPAN_CHECKPOINT), "
                    "or leave it out to use the one that ships"
                )
            # Torch takes seconds to import; only this thread needs it.
            import torch

            from midspan_engine.cpu import cpu_threads
            from midspan_engine.engine import Engine

            torch.set_num_threads(cpu_threads())
            self._note_progress(_IMPORTED)
            self.engine = Engine.load(self._checkpoint, self._note_weights, self._note_budget)
            self._loaded = time.perf_counter()
            self.lent.start_over()
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

    def _answer(self, engine: Engine, job: Job) -> Passes[Filled | Failed]:
        id = job.request.id
        self._take_out()
        if job.check_in():
            return Filled(id=id, silence=CANCELLED)
        try:
            return (yield from self._fill(engine, job))
        except Cancelled:
            return Filled(id=id, silence=CANCELLED)
        except Exception as error:  # one bad request must not take the model from everybody
            return failed(id, error)

    def _fill(self, engine: Engine, job: Job) -> Passes[Filled]:
        """Fills, and once more with empty caches when memory does not suffice."""
        workspace = document_key(job.client, job.request.workspace)
        request = msgspec.structs.replace(job.request, document=job.document, workspace=workspace)
        try:
            return (yield from self._run_engine(engine, job, request))
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            traceback.clear_frames(error.__traceback__)  # whoever has the error would hold their tensors
        logger.warning("out of memory at fill %d: trying again with empty caches", request.id)
        self.n_retries += 1
        engine.drop_caches()
        return (yield from self._run_engine(engine, job, request))

    def _run_engine(self, engine: Engine, job: Job, request: Fill) -> Passes[Filled]:
        from midspan_engine.edit import revise  # there is an engine, so torch is imported already

        received = max(job.received, self._loaded)  # a deadline is not spent on loading
        on_draft = (lambda draft: self._post(job.on_draft, draft)) if request.watch else None
        if not request.held:
            filling = engine.filling(request, received=received, is_cancelled=job.check_in, on_draft=on_draft)
            return (yield from filling)
        between = partial(self._let_through, job)
        return revise(
            engine,
            request,
            received=received,
            is_cancelled=job.check_in,
            on_draft=on_draft,
            between_canvases=between,
        )

    def _let_through(self, edit: Job) -> None:
        """Answers the fills that wait by now: an edit of many canvases takes minutes, and typing goes on meanwhile."""
        now = time.perf_counter()
        while (job := self.queue.interrupt(edit, now)) is not None:
            self._serve(job)

    def _finish(self, job: Job, reply: Filled | Failed) -> None:
        self.queue.leave(job)
        self._post(job.finish, reply)

    def _post(self, callback: Callable[[T], None], message: T) -> None:
        self._loop.call_soon_threadsafe(callback, message)
