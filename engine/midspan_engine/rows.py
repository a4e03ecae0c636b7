"""Fills that share decoder passes, each of them a row: those of several clients at once.

Reading the weights costs as much for one row as for two. Only the passes are shared: a fill keeps its order, its vote,
its deadline and its own cache, and what comes of it is what would have come of it alone, but for rounding. One that is
done leaves, another joins before the next pass.
"""

from __future__ import annotations

import traceback
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial

import torch

from midspan_engine.encoding import filled_up
from midspan_engine.job_queue import Job
from midspan_engine.models.diffusion_gemma import DiffusionGemma
from midspan_engine.passes import Passes, WantedPass, indices
from midspan_engine.protocol import Failed, Filled
from midspan_kernels.row_logits import RowLogits

Answer = Filled | Failed

ON_CPU = 2
"""Rows at most. A pass over 2 rows took 1.44 to 1.6 times that of one, over 4 rows 2.6 to 2.9 (embedded checkpoint, one
thread): two more make hardly more of the time, and everybody waits longer.
"""
ON_ACCELERATOR = 4
"""Rows at most. Chosen, not measured: its time goes into reading weights."""


class Rows:
    """The fills in hand, each of which waits for a pass."""

    def __init__(self, model: DiffusionGemma, on_done: Callable[[Job, Answer], None]) -> None:
        """Answers go to `on_done`; what goes wrong in a fill, it has to answer itself."""
        self._model, self._on_done = model, on_done
        self._rows: dict[Job, tuple[Passes[Answer], WantedPass]] = {}
        self.n_most = ON_CPU if model.embed_tokens.weight.device.type == "cpu" else ON_ACCELERATOR
        """Rows that are worth a pass on this device."""
        self.n_shared = 0
        """Passes that were made for more than one fill."""

    def __len__(self) -> int:
        return len(self._rows)

    @torch.inference_mode()
    def add(self, job: Job, fill: Passes[Answer]) -> None:
        """Begins a fill, up to the first pass that it wants."""
        self._resume(job, fill, partial(next, fill))

    @torch.inference_mode()
    def advance(self) -> None:
        """Makes one pass for all fills, and takes each up to the next one that it wants or to its end."""
        of_width: defaultdict[int, list[Job]] = defaultdict(list)
        for job in self._rows:
            of_width[self._rows[job][1].canvas_BC.shape[1]].append(job)
        made: dict[Job, RowLogits | Exception] = {}
        for jobs in of_width.values():
            made |= zip(jobs, self._made([self._rows[job][1] for job in jobs]), strict=True)
        fills = {job: fill for job, (fill, _) in self._rows.items()}
        self._rows.clear()  # one that is tried again has let go of the cache that it wanted to read
        for job, fill in fills.items():
            each = made[job]
            go_on = partial(fill.throw, each) if isinstance(each, Exception) else partial(fill.send, each)
            self._resume(job, fill, go_on)

    def _resume(self, job: Job, fill: Passes[Answer], go_on: Callable[[], WantedPass]) -> None:
        try:
            self._rows[job] = fill, go_on()
        except StopIteration as done:
            self._on_done(job, done.value)

    def _made(self, wanted: Sequence[WantedPass]) -> list[RowLogits | Exception]:
        """Returns what each fill is sent, all over canvases of one width: they share a pass.

        Where that fails, each has one of its own, or the error of that.
        """
        try:
            if len(wanted) == 1:
                return [wanted[0].make(self._model)]
            made = together(self._model, wanted)
            self.n_shared += 1
            return list(made)
        except Exception as error:
            traceback.clear_frames(error.__traceback__)  # they hold memory that another try may need
            if len(wanted) == 1:
                return [error]
        return [made for each in wanted for made in self._made([each])]


def together(model: DiffusionGemma, wanted: Sequence[WantedPass]) -> list[RowLogits]:
    """Makes passes over canvases of one width as one, and returns what each of them would have returned."""
    device = wanted[0].canvas_BC.device
    slots = sorted({slot for each in wanted for slot in each.slots})
    place = {slot: n for n, slot in enumerate(slots)}
    n_rows = [len(each.canvas_BC) for each in wanted]
    caches = [each.cache for each, n in zip(wanted, n_rows, strict=True) for _ in range(n)]
    canvas_BC = torch.cat([each.canvas_BC for each in wanted])
    soft_BCH = torch.cat([each.soft_BCH for each in wanted])
    hidden_BWH = model.decode(canvas_BC, caches, soft_BCH, indices(filled_up(slots, model), device))
    hidden = [
        rows_BWH[:, indices([place[slot] for slot in each.slots], device)]
        for each, rows_BWH in zip(wanted, torch.split(hidden_BWH, n_rows), strict=True)
    ]
    # the head, the largest matrix of all, is read once, too
    logits = model.row_logits(torch.cat([each_BSH.flatten(0, 1) for each_BSH in hidden]))
    of_each = torch.split(logits.z, [each_BSH.shape[0] * each_BSH.shape[1] for each_BSH in hidden])
    return [
        logits._replace(z=z_RV.view(*each_BSH.shape[:2], -1)) for z_RV, each_BSH in zip(of_each, hidden, strict=True)
    ]
