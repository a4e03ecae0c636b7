"""Canvases whose gaps differ in length, denoised as rows of the same decoder passes.

Each has an order of its own and leaves the batch when it is done; all begin with the same pins, so the longest gap
covers the slots of all others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

from midspan_engine.denoise import Settled, Settling, condition
from midspan_engine.errors import NO_NUMBERS, Cancelled, EngineError
from midspan_engine.kv import KVCache
from midspan_engine.length_policy import Outcome
from midspan_engine.models.diffusion_gemma import DiffusionGemma


@torch.inference_mode()
def denoise_side_by_side(
    model: DiffusionGemma,
    cache: KVCache,
    settlings: Sequence[Settling],
    max_steps: int,
    is_cancelled: Callable[[], bool],
    on_pass: Callable[[], None] = lambda: None,
) -> Outcome:
    """Denoises canvases of one gap, one row and one width each, all of which come back in their order.

    The first pass is made whatever the deadline. Raises Cancelled, or EngineError when the weights give no numbers.
    """
    deadline = min(settling.order.task.deadline for settling in settlings)
    n_passes, decoder_s = 0, 0.0
    while n_passes < max_steps:
        left = [each for each in settlings if not each.order.is_done and not each.order.is_hopeless]
        if not left or (n_passes and time.perf_counter() > deadline):
            break
        if is_cancelled():
            raise Cancelled("the request was withdrawn")
        began = time.perf_counter()
        logits = _logits(model, cache, left)
        decoder_s += time.perf_counter() - began
        for settling, z_1GV in zip(left, logits, strict=True):
            order = settling.order
            z_1GV = order.constrain(z_1GV)
            order.advance(z_1GV)
            settling.n_steps += 1
            if not order.is_done:
                settling.soft_BGH = model.soften(z_1GV)
        n_passes += 1
        on_pass()
    settled = []
    for settling in settlings:
        order, n_steps = settling.order, settling.n_steps
        held = order.draft_BG, order.accepted_BG, order.confidence_BG
        settled.append(Settled(order.task.canvas, *held, n_steps, 0, decoder_s, order.is_done))
    return Outcome(settled, n_passes, 0, decoder_s)


def _logits(model: DiffusionGemma, cache: KVCache, settlings: Sequence[Settling]) -> list[torch.Tensor]:
    """Returns the logits [1, G, V] of each canvas' gap after one pass over all of them."""
    device = model.embed_tokens.weight.device
    gaps = [settling.order.task.canvas.gaps[0] for settling in settlings]
    assert len({gap.start for gap in gaps}) == 1, "all canvases pin the same before the gap"
    rows, softs = [], []
    for settling, gap in zip(settlings, gaps, strict=True):
        row_1C = torch.tensor([settling.order.task.canvas.ids], device=device)
        known_1C = torch.ones_like(row_1C, dtype=torch.bool)
        row_1C[:, gap.start : gap.stop] = settling.order.slots_BG
        known_1C[:, gap.start : gap.stop] = settling.order.known_BG
        slots_G = torch.arange(gap.start, gap.stop, device=device)
        soft_1CH = condition(model, row_1C, known_1C, slots_G, settling.soft_BGH)
        rows.append(row_1C)
        softs.append(torch.zeros_like(model.embed(row_1C)) if soft_1CH is None else soft_1CH)
    wanted = torch.arange(gaps[0].start, max(gap.stop for gap in gaps), device=device)
    hidden_BWH = model.decode(torch.cat(rows), cache, torch.cat(softs), wanted)
    sizes = [len(gap) for gap in gaps]
    z_SV = model.logits(torch.cat([hidden_WH[:size] for hidden_WH, size in zip(hidden_BWH, sizes, strict=True)]))
    if z_SV.isnan().any():
        raise EngineError(NO_NUMBERS)
    return [z_GV[None] for z_GV in torch.split(z_SV, sizes)]
