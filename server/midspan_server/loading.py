"""The loading of the model as the editor shows it: a work-done progress that the server creates."""

from __future__ import annotations

from midspan_server.rpc import Server
from midspan_server.work_done import WorkDone

TITLE = "Midspan: loading the model"
TOKEN = "midspan/loading"
"""What the token of each progress begins with; editors that draw it themselves know it by that."""


class LoadingProgress:
    """Shows one client how far the engine is; clients that do not show progress are left alone."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._shown: WorkDone | None = None

    def __call__(self, share: float | None) -> None:
        """Takes how much is done, 0..1, or None when it is over."""
        if share is None:
            if self._shown is not None:
                self._shown.end()
            self._shown = None
            return
        self._shown = self._shown or WorkDone.offered(self._server, TOKEN, TITLE)
        if self._shown is not None:
            self._shown.report(int(share * 100))
