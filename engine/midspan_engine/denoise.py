"""The denoising loop: decoder pass, logits of the gap slots, an order's decision, self-conditioning, stop.

Only gap slots pass the output head, are counted by acceptance and stop rules, and get a soft embedding; a pinned slot
is written again before every pass and conditions on its own token.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch

from midspan_engine.canvas import Canvas
from midspan_engine.causal_vote import CausalVote
from midspan_engine.config import GenerationConfig, InfillConfig
from midspan_engine.entropy_order import EntropyOrder
from midspan_engine.errors import Cancelled
from midspan_engine.healing import GapRules
from midspan_engine.kv import KVCache
from midspan_engine.left_to_right import LeftToRight
from midspan_engine.models.diffusion_gemma import DiffusionGemma
from midspan_engine.order import Order, Task
from midspan_engine.passes import Passes, WantedPass, alone
from midspan_engine.sampler import sampler_for
from midspan_kernels.row_logits import RowLogits


@dataclass(slots=True)
class Settling:
    """A canvas on its way. It can be left between two passes and gone on from later."""

    order: Order
    soft_BGH: torch.Tensor | None = None
    """The soft embeddings of the last decoder pass."""
    n_steps: int = 0
    """Decoder passes so far."""
    n_encoder_steps: int = 0
    """Passes of the encoder alone so far."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What came of a canvas; arrays are [B, G], the gap slots of all gaps."""

    canvas: Canvas
    draft_BG: torch.Tensor
    accepted_BG: torch.Tensor
    """Which slots belong to the answer when it is not complete."""
    confidence_BG: torch.Tensor
    n_steps: int
    """Decoder passes, without those made before it was gone on from."""
    n_encoder_steps: int
    """Passes of the encoder alone, likewise."""
    decoder_s: float
    """Seconds in the decoder; where passes are shared, with what the others did before theirs were made."""
    is_complete: bool
    """False when the deadline or the step limit came first, or nothing probable enough can come of it."""


OnStep = Callable[[int, Order], None]


@torch.inference_mode()
def begin(
    model: DiffusionGemma, task: Task, rules: GapRules | None, infill: InfillConfig, generation: GenerationConfig
) -> Settling:
    """Returns the canvas of a task before its first pass; the same seed gives the same noise.

    Without `rules` any token may stand in a gap, as in the reference; the left-to-right order needs them.
    """
    device = model.embed_tokens.weight.device
    sampler = sampler_for(task.seed, infill, model.config.vocab_size, device)
    noise_BG = sampler.noise((task.n_rows, len(task.canvas.gap_slots)), 0)
    if infill.order == "left_to_right":
        assert rules is not None, "a run from the left ends by the rules of its gap"
        return Settling(LeftToRight(task, noise_BG, rules, infill))
    return Settling(EntropyOrder(task, noise_BG, rules, generation, sampler))


@torch.inference_mode()
def go_on(settling: Settling, task: Task) -> None:
    """Gives a canvas that was left a task of the same slots: another deadline, more text that its gaps begin with."""
    settling.order.go_on(task)


def denoise(
    model: DiffusionGemma,
    cache: KVCache,
    settling: Settling,
    max_steps: int,
    is_cancelled: Callable[[], bool],
    on_step: OnStep | None = None,
    vote: CausalVote | None = None,
) -> Settled:
    """Does what `settle` does, with passes that nobody shares."""
    return alone(model, settle(model, cache, settling, max_steps, is_cancelled, on_step, vote))


def settle(
    model: DiffusionGemma,
    cache: KVCache,
    settling: Settling,
    max_steps: int,
    is_cancelled: Callable[[], bool],
    on_step: OnStep | None = None,
    vote: CausalVote | None = None,
) -> Passes[Settled]:
    """Denoises the gaps of a canvas, and keeps in `settling` how far it is.

    The cancel flag and the deadline are read before every pass; the first step of a canvas is taken whatever the
    deadline unless the vote has accepted something by then, and it takes at most `max_steps` in all. The left-to-right
    order takes the encoder's `vote`. Raises Cancelled, or EngineError when the weights give no numbers.
    """
    device = model.embed_tokens.weight.device
    order, task = settling.order, settling.order.task
    from_left = cast(LeftToRight, order)  # where there is a vote: the config reader refuses it with another order
    gap_slots = torch.tensor(task.canvas.gap_slots, device=device)
    canvas_BC = torch.tensor([task.canvas.ids] * task.n_rows, device=device)
    known_BC = torch.ones_like(canvas_BC, dtype=torch.bool)
    n_steps_before, n_encoder_steps_before, decoder_s = settling.n_steps, settling.n_encoder_steps, 0.0

    def is_late() -> bool:
        if is_cancelled():
            raise Cancelled("the request was withdrawn")
        return time.perf_counter() > task.deadline

    def tell() -> None:
        if on_step is not None:
            n_passes = settling.n_steps + settling.n_encoder_steps
            on_step(n_passes - n_steps_before - n_encoder_steps_before, order)

    def tell_ahead() -> None:
        settling.n_encoder_steps += 1
        tell()

    while settling.n_steps < max_steps and not order.is_done:
        if is_late() and settling.n_steps:
            break
        # alternatives part at the first slot that the canvas decides
        if vote is not None and (settling.n_steps or task.n_rows == 1):
            vote.run_ahead(from_left, is_late, tell_ahead)
            if (is_late() and order.accepted_BG.any()) or order.is_done or order.is_hopeless:
                break
        canvas_BC[:, gap_slots] = order.slots_BG
        known_BC[:, gap_slots] = order.known_BG
        soft_BCH = condition(model, canvas_BC, known_BC, gap_slots, settling.soft_BGH)
        began = time.perf_counter()
        logits = yield WantedPass(canvas_BC, cache, soft_BCH, task.canvas.gap_slots)
        decoder_s += time.perf_counter() - began
        logits = order.constrain(logits)
        if vote is None:
            order.advance(logits)
        else:
            from_left.advance(RowLogits(vote.mix(logits.z, from_left)), leftmost_only=True)
        settling.n_steps += 1
        tell()
        if order.is_hopeless:
            break
        if not order.is_done:
            settling.soft_BGH = model.soften(*logits)
    if vote is not None and (order.is_done or order.is_hopeless):
        vote.seek_rival(from_left, is_late, tell_ahead)
    order.conclude()
    return Settled(
        task.canvas,
        order.draft_BG,
        order.accepted_BG,
        order.confidence_BG,
        settling.n_steps - n_steps_before,
        settling.n_encoder_steps - n_encoder_steps_before,
        decoder_s,
        order.is_done,
    )


def condition(
    model: DiffusionGemma,
    canvas_BC: torch.Tensor,
    known_BC: torch.Tensor,
    gap_slots: torch.Tensor,
    soft_BGH: torch.Tensor | None,
) -> torch.Tensor:
    """Returns the soft embeddings [B, C, H]: a known slot its own token's, a gap slot the last step's, else zero.

    Zeros add nothing to a canvas, as in the reference, which has none before the second step.
    """
    soft_BCH = model.embed(canvas_BC)
    guessed_BGH = torch.zeros_like(soft_BCH[:, gap_slots]) if soft_BGH is None else soft_BGH
    soft_BCH[:, gap_slots] = torch.where(known_BC[:, gap_slots, None], soft_BCH[:, gap_slots], guessed_BGH)
    return soft_BCH
