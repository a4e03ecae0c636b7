"""Work on canvases that names the decoder passes it wants and leaves it to others to make them.

Such work is a generator: it yields a `WantedPass`, is sent the logits, and returns what came of it. So it need not know
whether it has the model for itself (`alone`) or shares passes with others (`rows.py`).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from midspan_engine.kv import KVCache
from midspan_engine.models.diffusion_gemma import DiffusionGemma
from midspan_kernels.row_logits import RowLogits

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WantedPass:
    """What goes into one pass of the decoder, see its `decode`, and the slots whose logits are asked for."""

    canvas_BC: torch.Tensor
    cache: KVCache
    soft_BCH: torch.Tensor
    slots: Sequence[int]

    def make(self, model: DiffusionGemma) -> RowLogits:
        """Returns the logits [B, S, V] of the wanted slots, which may be changed in place."""
        slots_S = indices(self.slots, self.canvas_BC.device)
        return model.row_logits(model.decode(self.canvas_BC, self.cache, self.soft_BCH, slots_S))


def indices(slots: Sequence[int], device: torch.device) -> torch.Tensor:
    """Returns slots as a tensor [S] on a device, for which nothing waits."""
    slots_S = torch.tensor(slots, dtype=torch.int64, pin_memory=device.type == "cuda")
    return slots_S.to(device, non_blocking=True)


Passes = Generator[WantedPass, RowLogits, T]
"""Work of which T comes; whoever drives it does so in torch's inference mode."""


@torch.inference_mode()
def alone(model: DiffusionGemma, work: Passes[T]) -> T:
    """Makes the passes that some work wants, one after the other, and returns what comes of it."""
    try:
        wanted = next(work)
        while True:
            wanted = work.send(wanted.make(model))
    except StopIteration as done:
        result: T = done.value
        return result
