"""The probe: one decoder pass over many lengths at once, the best few of them decoded, the encoder has the last word.

For checkpoints without a blank token. On an accelerator whose time goes into reading weights the batch costs little
more than one row; on a CPU it costs as many times more as it has rows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace

import torch

from midspan_engine.canvas import Canvas
from midspan_engine.causal_reader import CausalReader, of_tokens
from midspan_engine.echo import Echo
from midspan_engine.errors import NO_NUMBERS, Cancelled, EngineError
from midspan_engine.healing import Allowance
from midspan_engine.length_policy import Filling, Means, Outcome, log_probability, resized, weighted
from midspan_engine.passes import Passes
from midspan_engine.sampler import sampler_for
from midspan_engine.side_by_side import denoise_side_by_side
from midspan_kernels.row_statistics import row_statistics

LENGTHS = (*range(3, 17), 20, 24, 32)
"""Slots that are probed. Source: a published comparison on one-line gaps, in which this grid was better than climbing
from length to length."""
LENGTH_POWER = 0.1
"""The mean confidence times the length to this power is compared: alone it favours short gaps. Source: as above."""
N_DECODED = 3
"""Lengths that are decoded; chosen. A request for more candidates decodes as many."""
_ROWS_AT_ONCE = 4
"""Rows whose logits are held at a time: with a vocabulary of 262144 about 250 MB."""


class Probe:
    """Compares lengths by what the canvas makes of them at first sight, then by what comes of the best."""

    def __init__(self, means: Means) -> None:
        self._means = means

    def fill(self, filling: Filling) -> Passes[Outcome]:
        """Returns the answers that the encoder finds most probable, as many as there are alternatives asked for."""
        means, task = self._means, filling.task
        n_most, pad = len(task.canvas.gaps[0]), means.tokens.pad_token_id or 0
        lengths = [length for length in LENGTHS if length <= n_most] or [n_most]
        n_head = min(len(filling.prompt.after), means.infill.head_tokens)
        width = min(means.model.config.canvas_length, task.canvas.gaps[0].start + lengths[-1] + n_head)
        canvases = [resized(filling.prompt, length, width, means.infill, pad) for length in lengths]
        began = time.perf_counter()
        scores = self.scores(filling, canvases)
        probed = Outcome([], 1, 0, time.perf_counter() - began)
        ranked = sorted(range(len(lengths)), key=lambda index: -scores[index])
        best = [canvases[index] for index in ranked[: max(N_DECODED, task.n_rows)]]
        settlings = [means.begin(replace(task, canvas=canvas, n_rows=1)) for canvas in best]

        def tell() -> None:
            if filling.on_step is not None:
                filling.on_step(1 + settlings[0].n_steps, settlings[0].order)

        n_steps = means.generation.max_denoising_steps
        found = yield from denoise_side_by_side(
            means.model, filling.cache, settlings, n_steps, filling.is_cancelled, tell
        )
        found = found.behind(probed)
        if not task.single_line and not _is_late(filling):
            echoed = yield from Echo(means).draft(filling)
            found = replace(echoed.behind(found), settled=[*found.settled, *echoed.settled])
        if len(found.settled) == 1 or _is_late(filling):
            return replace(found, settled=found.settled[: task.n_rows])
        return self._reranked(filling, found)

    @torch.inference_mode()
    def scores(self, filling: Filling, canvases: Sequence[Canvas]) -> list[float]:
        """Returns for each length the logarithm of its corrected mean confidence, the higher the better.

        Under uniform noise, where any slot might be wrong, the mean log-probability of the pinned slots behind the gap
        is added: whether they fit at that distance.
        """
        means, model = self._means, self._means.model
        if filling.is_cancelled():
            raise Cancelled("the request was withdrawn")
        device = model.embed_tokens.weight.device
        canvas_BC = torch.tensor([canvas.ids for canvas in canvases], device=device)
        known_BC = torch.ones_like(canvas_BC, dtype=torch.bool)
        gaps = [canvas.gaps[0] for canvas in canvases]
        for row, gap in enumerate(gaps):
            # each length begins as it would alone
            sampler = sampler_for(filling.task.seed, means.infill, model.config.vocab_size, device)
            canvas_BC[row, gap.start : gap.stop] = sampler.noise((1, len(gap)), 0)
            # a slot that is fed its own token says it again, whether it fits or not
            known_BC[row, gap.start : gap.stop if means.infill.noise == "mask" else None] = False
        soft_BCH = model.embed(canvas_BC) * known_BC[..., None]
        start = gaps[0].start
        hidden_BWH = model.decode(
            canvas_BC, filling.cache, soft_BCH, torch.arange(start, canvas_BC.shape[1], device=device)
        )
        scores: list[torch.Tensor] = []
        longest, vocab_size = max(len(gap) for gap in gaps), model.config.vocab_size
        allowance = means.rules.allowance(
            filling.prompt.required[0], filling.task.single_line, longest, vocab_size, device
        )
        for some_BWH in torch.split(hidden_BWH, _ROWS_AT_ONCE):
            for z_WV in model.logits(some_BWH):
                scores.append(self._score(filling, z_WV, canvases[len(scores)], allowance))
        found: list[float] = torch.stack(scores).tolist()
        if any(math.isnan(score) for score in found):
            raise EngineError(NO_NUMBERS)
        return found

    def _score(self, filling: Filling, z_WV: torch.Tensor, canvas: Canvas, allowance: Allowance) -> torch.Tensor:
        gap, infill = canvas.gaps[0], self._means.infill
        z_GV = allowance.constrain(z_WV[: len(gap)].clone())
        confidence = row_statistics(z_GV).confidence.mean().clamp(min=1e-9)
        score = confidence.log() + LENGTH_POWER * math.log(len(gap))
        n_head = min(len(filling.prompt.after), infill.head_tokens, len(canvas.ids) - gap.stop)
        if infill.noise == "mask" or n_head == 0:
            return score
        head = list(canvas.ids[gap.stop : gap.stop + n_head])
        return score + of_tokens(z_WV[len(gap) : len(gap) + n_head], head).mean()

    def _reranked(self, filling: Filling, found: Outcome) -> Outcome:
        """Returns the answers that lead to what follows best; their lengths are as probable as the encoder has it."""
        settled = [each for each in found.settled if each.is_complete] or found.settled
        reader = CausalReader(self._means.model, filling.cache)
        weights = torch.tensor([log_probability(self._means, filling, each, reader) for each in settled])
        shares = weights.softmax(0).nan_to_num(0.0)  # no answer may be text
        best = [int(index) for index in shares.argsort(descending=True, stable=True)[: filling.task.n_rows]]
        chosen = [weighted(settled[index], float(shares[index])) for index in best]
        return replace(found, settled=chosen, n_encoder_steps=found.n_encoder_steps + len(settled))


def _is_late(filling: Filling) -> bool:
    return time.perf_counter() > filling.task.deadline
