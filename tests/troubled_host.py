"""An engine host with the real model and troubles of its own: what a document is called decides what befalls its fills.

Run as `python troubled_host.py OPTIONS`, with the options of `midspan_engine host`; it is impatient as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from midspan_engine import host, watchdog
from midspan_engine.checkpoint_files import CheckpointFiles
from midspan_engine.engine import Engine
from midspan_engine.job_queue import Job
from midspan_engine.passes import Passes
from midspan_engine.protocol import Draft, Fill, Filled

FOREVER_S = 3600.0
TOO_MUCH = 2**50
"""A petabyte, which no allocator has."""

_real_filling = Engine.filling


def _filling(self: Engine, request: Fill, **rest: object) -> Passes[Filled]:
    if request.watch and "held-after-" in request.document:
        n_passes = int(request.document.removesuffix(".py").rpartition("-")[2])
        rest["on_draft"] = _held(rest["is_cancelled"].__self__, rest["on_draft"], n_passes)  # type: ignore[attr-defined, arg-type]
    if request.document.endswith("hangs.py"):
        time.sleep(FOREVER_S)
    if request.document.endswith("hungry.py") or (request.document.endswith("hungry-once.py") and len(self.prefixes)):
        torch.empty(TOO_MUCH, dtype=torch.uint8)
    return _real_filling(self, request, **rest)  # type: ignore[arg-type]


def _held(job: Job, on_draft: Callable[[Draft], None], n_passes: int) -> Callable[[Draft], None]:
    """Tells of so many passes, then lets the model go on only once the job is withdrawn."""

    def tell(draft: Draft) -> None:
        on_draft(draft)
        if draft.step == n_passes:
            job._cancelled.wait()

    return tell


if __name__ == "__main__":
    Engine.filling = _filling  # type: ignore[assignment, method-assign]
    watchdog.HANG_S = host.HANG_S = 1.0
    host.TICK_S = 0.1
    host.FAILED_IDLE_S = 0.5
    CheckpointFiles.LOOK_S = 0.1
    host.command()
