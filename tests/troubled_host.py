"""An engine host with the real model and troubles of its own: what a document is called decides what befalls its fills.

Run as `python troubled_host.py OPTIONS`, with the options of `midspan_engine host`; it is impatient as well.
"""

from __future__ import annotations

import time

import torch

from midspan_engine import host, watchdog, worker
from midspan_engine.engine import Engine
from midspan_engine.protocol import Fill, Filled

FOREVER_S = 3600.0
TOO_MUCH = 2**50
"""A petabyte, which no allocator has."""

_real_fill = Engine.fill


def _fill(self: Engine, request: Fill, **rest: object) -> Filled:
    if request.document.endswith("hangs.py"):
        time.sleep(FOREVER_S)
    if request.document.endswith("hungry.py") or (request.document.endswith("hungry-once.py") and len(self.prefixes)):
        torch.empty(TOO_MUCH, dtype=torch.uint8)
    return _real_fill(self, request, **rest)  # type: ignore[arg-type]


if __name__ == "__main__":
    Engine.fill = _fill  # type: ignore[assignment, method-assign]
    watchdog.HANG_S = host.HANG_S = 1.0
    host.TICK_S = 0.1
    host.FAILED_IDLE_S = 0.5
    worker.LOOK_S = 0.1
    host.command()
