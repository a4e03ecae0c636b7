"""A work-done progress as the editor shows it: under a token of the client, or under one that the server creates."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any
from uuid import uuid4

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from midspan_server.rpc import Server


class WorkDone:
    """One progress; whoever begins it or has it offered ends it."""

    def __init__(
        self, server: Server, token: types.ProgressToken, title: str, on_cancel: Callable[[], object] | None = None
    ) -> None:
        """Takes what is to be done when the user cancels; without it the user cannot."""
        self._progress = server.work_done_progress
        self._token, self._title, self._on_cancel = token, title, on_cancel
        self._last: types.WorkDoneProgressReport | None = None
        self._is_begun = self._is_over = False
        self._creating: asyncio.Task[None] | None = None

    @classmethod
    def offered(
        cls, server: Server, prefix: str, title: str, on_cancel: Callable[[], object] | None = None
    ) -> WorkDone | None:
        """Shows one as soon as the client knows its token, which begins with `prefix`; a client may refuse it.

        None where the client shows nothing that the server creates.
        """
        window = server.client_capabilities.window
        if not (window and window.work_done_progress):
            return None
        offered = cls(server, f"{prefix}/{uuid4()}", title, on_cancel)
        offered._creating = asyncio.create_task(offered._create())
        return offered

    def begin(self) -> None:
        """Shows it under a token that the client knows."""
        begin = types.WorkDoneProgressBegin(self._title, cancellable=self._on_cancel is not None, percentage=0)
        self._progress.begin(self._token, begin)
        self._progress.tokens[self._token].add_done_callback(self._ended)
        self._is_begun = True
        if self._last is not None:
            self._progress.report(self._token, self._last)

    def report(self, percentage: int, message: str | None = None) -> None:
        """Says how far it is, 0..100."""
        self._last = types.WorkDoneProgressReport(message=message, percentage=percentage)
        if self._is_begun:
            self._progress.report(self._token, self._last)

    def end(self) -> None:
        """Takes it from the screen; what the client knows no token of yet is not shown any more."""
        self._is_over = True
        if self._is_begun:
            self._progress.end(self._token, types.WorkDoneProgressEnd())
            self._progress.tokens.pop(self._token, None)

    async def _create(self) -> None:
        with contextlib.suppress(JsonRpcException):
            # Shielded: pygls cannot bear that a request of ours is cancelled before its answer comes.
            await asyncio.shield(self._progress.create_async(self._token))
            if self._is_over:
                self._progress.tokens.pop(self._token, None)
            else:
                self.begin()

    def _ended(self, future: Future[Any]) -> None:
        if future.cancelled() and self._on_cancel is not None:
            self._on_cancel()
