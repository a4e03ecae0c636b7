"""Canvases whose gaps differ in length, denoised as rows of the same decoder passes.

Each has an order of its own and leaves the batch when it is done; all begin with the same pins, so the longest gap
covers the slots of all others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

from midspan_engine.denoise import Settled, Settling, condition
from midspan_engine.errors import Cancelled
from midspan_engine.kv import KVCache
from midspan_engine.length_policy import Outcome
from midspan_engine.models.diffusion_gemma import DiffusionGemma
from midspan_engine.passes import Passes, WantedPass


def denoise_side_by_side(
    model: DiffusionGemma,
    cache: KVCache,
    settlings: Sequence[Settling],
    max_steps: int,
    is_cancelled: Callable[[], bool],
    on_pass: Callable[[], None] = lambda: None,
) -> Passes[Outcome]:
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
        logits = yield _wanted(model, cache, left)
        decoder_s += time.perf_counter() - began
        for settling, z_WV in zip(left, logits.z, strict=True):
            order = settling.order
            of_gap = order.constrain(logits._replace(z=z_WV[None, : len(order.task.canvas.gap_slots)]))
            order.advance(of_gap)
            settling.n_steps += 1
            if not order.is_done:
                settling.soft_BGH = model.soften(*of_gap)
        n_passes += 1
        on_pass()
    settled = []
    for settling in settlings:
        order, n_steps = settling.order, settling.n_steps
        order.conclude()
        held = order.draft_BG, order.accepted_BG, order.confidence_BG
        settled.append(Settled(order.task.canvas, *held, n_steps, 0, decoder_s, order.is_done))
    return Outcome(settled, n_passes, 0, decoder_s)


def _wanted(model: DiffusionGemma, cache: KVCache, settlings: Sequence[Settling]) -> WantedPass:
    """Returns one pass over all canvases, and the slots of the longest gap."""
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
        rows.append(row_1C)
        softs.append(condition(model, row_1C, known_1C, slots_G, settling.soft_BGH))
    wanted = range(gaps[0].start, max(gap.stop for gap in gaps))
    return WantedPass(torch.cat(rows), cache, torch.cat(softs), wanted)
