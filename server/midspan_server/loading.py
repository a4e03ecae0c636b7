"""The loading of the model as the editor shows it: a work-done progress that the server creates."""

from __future__ import annotations

import asyncio
import contextlib
import itertools

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from midspan_server.rpc import Server

TITLE = "Midspan: loading the model"
TOKEN = "midspan/loading"
"""What the token of each progress begins with; editors that draw it themselves know it by that."""


class LoadingProgress:
    """Shows one client how far the engine is; clients that do not show progress are left alone."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._numbers = itertools.count(1)
        self._share: float | None = None
        self._showing: asyncio.Task[None] | None = None
        self._news = asyncio.Event()

    def __call__(self, share: float | None) -> None:
        """Takes how much is done, 0..1, or None when it is over."""
        window = self._server.client_capabilities.window
        if not (window and window.work_done_progress):
            return
        self._share = share
        self._news.set()
        if share is not None and (self._showing is None or self._showing.done()):
            self._showing = asyncio.create_task(self._show(f"{TOKEN}/{next(self._numbers)}"))

    async def _show(self, token: str) -> None:
        progress = self._server.work_done_progress
        with contextlib.suppress(JsonRpcException):  # a client that refuses the token is told nothing
            # Shielded: pygls cannot bear that a request of ours is cancelled before its answer comes.
            await asyncio.shield(progress.create_async(token))
            progress.begin(token, types.WorkDoneProgressBegin(title=TITLE, percentage=0, cancellable=False))
            while (share := self._share) is not None:
                progress.report(token, types.WorkDoneProgressReport(percentage=int(share * 100)))
                self._news.clear()
                await self._news.wait()
            progress.end(token, types.WorkDoneProgressEnd())
