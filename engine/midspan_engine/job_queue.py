"""What waits for the model: the jobs of all clients, and which of them comes next.

Typed fills may run side by side (`rows.py`), all others run alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from midspan_engine.protocol import Draft, Failed, Fill, Filled, Priority

CANCELLED = "cancelled"
SUPERSEDED = "superseded by a newer request for this document"
GAVE_WAY = "a guess of what comes next gave way to a request"
CLOSED = "the document was closed"

STARVED_S = 2.0
"""After so long a fill of several candidates counts as typed: eight people who type could hold it back for ever. A
choice, as long as somebody who asked for alternatives keeps looking.
"""

_RANKS: dict[Priority, int] = {"typed": 0, "several": 1, "prefetch": 2}


class Job:
    """One fill on its way through the worker."""

    def __init__(
        self,
        request: Fill,
        *,
        client: int,
        received: float,
        on_draft: Callable[[Draft], None],
        on_done: Callable[[Filled | Failed], None],
    ) -> None:
        self.request = request
        self.client = client
        """Tells clients apart, as long as the host lives."""
        self.received = received
        """Seconds of `time.perf_counter` when the request arrived."""
        self.on_draft = on_draft
        """Called on the event loop."""
        self.n_signs = 0
        """Grows with every step of the model: how often the engine has looked whether to go on."""
        self._on_done = on_done
        self._is_done = False
        self._cancelled = threading.Event()

    @property
    def document(self) -> str:
        """The document's name among those of all clients."""
        return document_key(self.client, self.request.document)

    def finish(self, reply: Filled | Failed) -> None:
        """Hands over the answer, on the event loop; the first one counts."""
        if not self._is_done:
            self._is_done = True
            self._on_done(reply)

    def end(self, silence: str) -> None:
        """Tells the engine to stop at its next step, and answers at once; on the event loop."""
        self.cancel()
        self.finish(Filled(id=self.request.id, silence=silence))

    def cancel(self) -> None:
        """Tells the engine to stop at its next denoising step."""
        self._cancelled.set()

    def check_in(self) -> bool:
        """Shows a sign of life, and says whether the engine is to stop."""
        self.n_signs += 1
        return self._cancelled.is_set()


class JobQueue:
    """The jobs that wait and those that run; methods may be called from any thread."""

    def __init__(self) -> None:
        self._jobs: list[Job] = []
        self._running: tuple[Job, ...] = ()
        self._turns: dict[int, int] = {}
        self._n_taken = 0
        self._is_woken = False
        self._change = threading.Condition()

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def running(self) -> tuple[Job, ...]:
        """The jobs in the hands of the worker; with one that an edit lets through, that edit."""
        return self._running

    def put(self, job: Job) -> list[tuple[Job, str]]:
        """Adds a job; returns those that it replaces, with the reason, for their clients to be told."""
        with self._change:
            replaced = [(old, reason) for old in self._present() if (reason := self._reason_to_yield(old, job))]
            gone = [old for old, _ in replaced]
            self._jobs = [old for old in self._jobs if old not in gone]
            self._jobs.append(job)
            self._change.notify()
        return replaced

    def take(self, timeout_s: float) -> Job | None:
        """Returns the next job once there is one, None after a while or when woken; those before it count as done.

        By urgency, then whose turn is longest ago, then by arrival.
        """
        with self._change:
            self._running = ()
            self._change.wait_for(lambda: self._jobs or self._is_woken, timeout_s)
            self._is_woken = False
            return self._run_next(self._jobs)

    def join(self, n_most: int) -> Job | None:
        """Returns the next job if it may run beside those that run by now, so that there are `n_most` at most.

        None where it has to run alone, or another of its document is still in hand: nobody overtakes it, so that it
        cannot be held back for ever. None, too, while an edit waits for its next canvas.
        """
        with self._change:
            job = self._next(self._jobs)
            if job is None or len(self._running) >= n_most:
                return None
            is_in_hand = job.document in [other.document for other in self._running]
            may_join = not is_in_hand and all(map(_is_shareable, (job, *self._running)))
            return self._run_next([job]) if may_join else None

    def leave(self, job: Job) -> None:
        """Counts one of the jobs that run as done."""
        with self._change:
            self._running = tuple(other for other in self._running if other is not job)

    def interrupt(self, edit: Job, before: float) -> Job | None:
        """Returns the next fill to be run between two canvases of an edit, None when the edit is to go on.

        Edits and guesses wait for the end. So does whatever came after the time `before` for the next canvas: otherwise
        eight people who type could hold an edit back for ever.
        """
        with self._change:
            asked = [job for job in self._jobs if not job.request.held and job.request.priority != "prefetch"]
            self._running = (edit,)
            return self._run_next([job for job in asked if job.received <= before])

    def wake(self) -> None:
        """Makes a waiting `take` return."""
        with self._change:
            self._is_woken = True
            self._change.notify()

    def discard(self, job: Job) -> bool:
        """Removes a job that nobody waits for any more, if it has not begun; says whether it was there."""
        with self._change:
            is_waiting = job in self._jobs
            if is_waiting:
                self._jobs.remove(job)
            return is_waiting

    def of_document(self, document: str) -> list[Job]:
        """Returns the jobs of a document, running or not."""
        with self._change:
            return [job for job in self._present() if job.document == document]

    def forget_client(self, client: int) -> None:
        """Forgets whose turn it was, when a client has left."""
        with self._change:
            self._turns.pop(client, None)

    def _present(self) -> list[Job]:
        return [*self._jobs, *self._running]

    def _next(self, jobs: Sequence[Job]) -> Job | None:
        now = time.perf_counter()
        return min(jobs, key=lambda job: (_rank(job, now), self._turns.get(job.client, 0)), default=None)

    def _run_next(self, jobs: Sequence[Job]) -> Job | None:
        job = self._next(jobs)
        if job is not None:
            self._jobs.remove(job)
            self._running = (*self._running, job)
            self._n_taken += 1
            self._turns[job.client] = self._n_taken
        return job

    def _reason_to_yield(self, old: Job, new: Job) -> str | None:
        is_guess, is_old_guess = new.request.priority == "prefetch", old.request.priority == "prefetch"
        is_alike = bool(old.request.held) == bool(new.request.held)  # an edit goes on while the user types elsewhere
        if old.document == new.document and is_alike and (is_old_guess or not is_guess):
            return SUPERSEDED
        return GAVE_WAY if old in self._running and is_old_guess and not is_guess else None


def document_key(client: int, document: str) -> str:
    """Returns the name of a client's document; two clients that edit one file keep each a cache of it."""
    return f"{client} {document}"


def _is_shareable(job: Job) -> bool:
    """Says whether a job may run beside others: it has one row, and nobody who types waits for a longer one."""
    return job.request.priority == "typed" and job.request.n_candidates == 1 and not job.request.held


def _rank(job: Job, now: float) -> int:
    rank = _RANKS[job.request.priority]
    return 0 if job.request.priority == "several" and now - job.received > STARVED_S else rank
