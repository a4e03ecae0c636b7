"""Shows how a training run comes along: a bar on a terminal, a line now and then anywhere else."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

LINE_SECONDS = 30.0
"""A log of a night's run stays readable at two lines a minute."""


class Meter:
    """The progress of one run, of which a share is done already; a context manager.

    `is_shown` is true in one process of a run.
    """

    def __init__(self, share: float, *, is_shown: bool) -> None:
        console = Console()
        self._is_shown = is_shown
        self._first = share
        self._started = time.monotonic()
        self._said = -LINE_SECONDS
        self._bar: Progress | None = None
        self._task = TaskID(0)
        if is_shown and console.is_terminal:
            note = TextColumn("{task.fields[note]}")
            self._bar = Progress("{task.description}", BarColumn(), TimeRemainingColumn(), note, console=console)
            self._task = self._bar.add_task("training", total=1.0, note="")
            self._bar.update(self._task, completed=share)

    def __enter__(self) -> Meter:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, what: str, share: float, losses: dict[str, float]) -> None:
        """Tells of a finished step, after which a share of the run is done."""
        note = " ".join(f"{name} {loss:.3f}" for name, loss in losses.items())
        if self._bar is not None:
            self._bar.update(self._task, description=what, completed=share, note=note)
            return
        passed = time.monotonic() - self._started
        if self._is_shown and (passed - self._said >= LINE_SECONDS or share >= 1):
            self._said = passed
            left = passed / max(share - self._first, 1e-9) * max(0.0, 1 - share) / 60
            print(f"{what}  {note}  {left:.0f} minutes left", flush=True)
