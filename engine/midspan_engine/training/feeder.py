"""Rows drawn ahead by processes of their own, for a device that would wait for them.

A row with its canvases takes 2 ms to draw (measured, one core): an accelerator trains hundreds of them a second. Rows
travel as plain arrays through a pipe, since memory that processes share is scarce where a container limits it.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import queue
import signal
from multiprocessing.process import BaseProcess
from typing import Any, Literal

import torch

from midspan_engine.errors import EngineError
from midspan_engine.tokens import Tokens
from midspan_engine.training.examples import Batch
from midspan_engine.training.job import Job, make_examples

Kind = Literal["rows", "batch"]

PER_FEEDER = 2
"""Batches that lie ready for each process; chosen."""
_PATIENCE = 5.0
"""Seconds after which one side looks whether the other is still there."""
_SEED_STRIDE = 7_919
"""Keeps the feeders' seeds apart from each other and from those of a resumed run; any prime."""


class Feeder:
    """Draws like an `ExampleMaker`, in processes; batches come in the order in which they are done."""

    def __init__(self, job: Job, seed: int) -> None:
        self._job, self._seed = job, seed
        self._asked: tuple[Kind, int] | None = None
        self._workers: list[BaseProcess] = []
        self._ready: multiprocessing.queues.Queue[Any] | None = None

    def rows(self, n_rows: int) -> torch.Tensor:
        """See `ExampleMaker`."""
        return torch.from_numpy(self._next("rows", n_rows)[0])

    def batch(self, n_rows: int) -> Batch:
        """See `ExampleMaker`."""
        return Batch(*map(torch.from_numpy, self._next("batch", n_rows)))

    def stop(self) -> None:
        """Ends the processes."""
        for worker in self._workers:
            worker.terminate()
        for worker in self._workers:
            worker.join()
        self._workers, self._asked = [], None

    def _next(self, kind: Kind, n_rows: int) -> Any:
        if self._asked != (kind, n_rows):
            self._start(kind, n_rows)
        assert self._ready is not None, "feeders were started"
        while True:
            try:
                drawn = self._ready.get(timeout=_PATIENCE)
            except queue.Empty:
                if all(worker.is_alive() for worker in self._workers):
                    continue
                raise EngineError("a process that draws rows has ended: run the command again to go on") from None
            if isinstance(drawn, Exception):
                raise drawn
            return drawn

    def _start(self, kind: Kind, n_rows: int) -> None:
        self.stop()
        self._asked = (kind, n_rows)
        # spawned: a process that has used an accelerator cannot be forked
        context = multiprocessing.get_context("spawn")
        self._ready = context.Queue(PER_FEEDER * self._job.n_feeders)
        for index in range(self._job.n_feeders):
            seed = self._seed + _SEED_STRIDE * (index + 1)
            worker = context.Process(target=_feed, args=(self._ready, self._job, kind, n_rows, seed), daemon=True)
            worker.start()
            self._workers.append(worker)


def _feed(ready: multiprocessing.queues.Queue[Any], job: Job, kind: Kind, n_rows: int, seed: int) -> None:
    """Puts arrays, or the error that ends it, into a queue as long as the process that reads it lives."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    ready.cancel_join_thread()
    try:
        maker = make_examples(job, Tokens.load(job.data / "tokenizer.json"), "train", seed)
        while True:
            _put(ready, [maker.rows(n_rows).numpy()] if kind == "rows" else _arrays(maker.batch(n_rows)))
    except Exception as error:
        _put(ready, error)


def _arrays(batch: Batch) -> list[Any]:
    return [getattr(batch, field.name).numpy() for field in dataclasses.fields(batch)]


def _put(ready: multiprocessing.queues.Queue[Any], item: Any) -> None:
    parent = multiprocessing.parent_process()
    while parent is None or parent.is_alive():
        try:
            return ready.put(item, timeout=_PATIENCE)
        except queue.Full:
            continue
    raise SystemExit
