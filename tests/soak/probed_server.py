"""A language server that measures how late its event loop is, and tells it at its end in the file SOAK_LAG_FILE."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from midspan_server import lsp

PROBE_S = 0.005

_serve = lsp._serve


async def _probe(lags_ms: list[float]) -> None:
    loop = asyncio.get_running_loop()
    while True:
        before = loop.time()
        await asyncio.sleep(PROBE_S)
        lags_ms.append((loop.time() - before - PROBE_S) * 1000)


async def _probed(front: lsp.Front) -> int:
    lags_ms: list[float] = []
    probe = asyncio.create_task(_probe(lags_ms))
    try:
        return await _serve(front)
    finally:
        probe.cancel()
        Path(os.environ["SOAK_LAG_FILE"]).write_text(json.dumps(lags_ms))


if __name__ == "__main__":
    lsp._serve = _probed
    sys.exit(lsp.serve_stdio("ERROR"))
