"""A language server that measures how late its event loop is, and tells it at its end in the file SOAK_LAG_FILE.

The signal SIGUSR1 says that the run begins: what was measured before, while server and engine started, is dropped.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from array import array
from pathlib import Path

from midspan_server import lsp
from midspan_server.stdio import Connection

PROBE_S = 0.005

_serve = lsp.serve


async def _probe(lags_ms: array[float]) -> None:
    loop = asyncio.get_running_loop()
    while True:
        before = loop.time()
        await asyncio.sleep(PROBE_S)
        lags_ms.append((loop.time() - before - PROBE_S) * 1000)


async def _probed(front: lsp.Front, connection: Connection) -> int:
    lags_ms = array("f")  # a list would be most of what the server's memory grows by
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, lags_ms.__delitem__, slice(None))
    probe = asyncio.create_task(_probe(lags_ms))
    try:
        return await _serve(front, connection)
    finally:
        probe.cancel()
        told = {"every_ms": PROBE_S * 1000, "lags_ms": lags_ms.tolist()}
        Path(os.environ["SOAK_LAG_FILE"]).write_text(json.dumps(told))


if __name__ == "__main__":
    lsp.serve = _probed
    sys.exit(lsp.serve_stdio("ERROR"))
