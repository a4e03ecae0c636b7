"""What a denoising step tells the host: its draft, and whether it was the last one.

An accelerator works while the host prepares what comes next, unless the host asks what came of a step: then it waits,
and after it the accelerator does. So a step's report is copied behind it into pinned memory, and read only when
another step is under way. One that was not needed may be under way then; the answer is that of the step that was done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import torch


class StepReport(NamedTuple):
    """Of one step; arrays are [B, G], G counts gap slots."""

    draft_BG: torch.Tensor
    accepted_BG: torch.Tensor
    confidence_BG: torch.Tensor
    entropy_BG: torch.Tensor
    is_settled: torch.Tensor
    """Whether the stop rule fires, []."""
    is_broken: torch.Tensor
    """Whether the weights gave no numbers, []."""


class StepReports:
    """The reports of the last steps, in their order, on their way to the host."""

    def __init__(self) -> None:
        self._under_way: deque[tuple[StepReport, torch.cuda.Event | None]] = deque()

    def send(self, report: StepReport) -> None:
        """Has a report copied as soon as its step is done; what lies on the host already is kept as it is."""
        if not report.draft_BG.is_cuda:
            self._under_way.append((report, None))
            return
        held = StepReport(*(torch.empty(part.shape, dtype=part.dtype, pin_memory=True) for part in report))
        for place, part in zip(held, report, strict=True):
            place.copy_(part, non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self._under_way.append((held, event))

    def arrived(self, n_behind: int) -> Iterator[StepReport]:
        """Yields the reports not read yet, but for the last `n_behind`; waits for their steps."""
        while len(self._under_way) > n_behind:
            report, event = self._under_way.popleft()
            if event is not None:
                event.synchronize()
            yield report

    def forget(self) -> None:
        """Drops the reports that were not read."""
        self._under_way.clear()
