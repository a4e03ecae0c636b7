"""The echo: the model writes on without being held to a length, and what follows the gap shows where the gap ended.

For gaps too long to probe. What follows is quoted to the model (by the conversation, or by the quote that the
checkpoint knows), the canvas behind the prefix is free; where the draft says the first line of what follows, it is cut,
what follows is pinned there, and a few steps more see both sides.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
import torch

from midspan_engine.canvas import lay_out
from midspan_engine.denoise import Settled, settle
from midspan_engine.length_policy import AsLaidOut, Filling, Means, Outcome, resized
from midspan_engine.passes import Passes
from midspan_engine.prompt import quote

POLISH_STEPS = 3
"""Steps behind the cut: chosen."""
ECHO_TOKENS = 16
"""Free slots more than the gap may take, in which the echo can show: a line of code takes about ten. Chosen."""


class Echo:
    """Finds a length by letting the model say what follows."""

    def __init__(self, means: Means) -> None:
        self._means = means

    def fill(self, filling: Filling) -> Passes[Outcome]:
        """Returns the polished draft; where nothing of what follows was said, all of the gap is filled instead."""
        drafted = yield from self.draft(filling)
        if drafted.settled:
            return drafted
        filled = yield from AsLaidOut(self._means).fill(filling)
        return filled.behind(drafted)

    def draft(self, filling: Filling) -> Passes[Outcome]:
        """Returns one answer whose length is that up to its echo; none without an echo."""
        means, free = self._means, (yield from self._free(filling))
        nothing = replace(Outcome.of(free), settled=[])
        spelled = b"".join(means.tokens.spellings[token] for token in free.draft_BG[0].tolist())
        written = spelled.decode(errors="replace")
        text = cut_at_echo(written, filling.following, filling.task.single_line)
        required = filling.prompt.required[0].decode()
        if text is None or "\ufffd" in text or not text.startswith(required) or len(text) == len(required):
            return nothing
        ids = means.tokens.encode(text)
        if len(ids) > len(filling.task.canvas.gaps[0]):
            return nothing
        polished = yield from self._polished(filling, ids)
        return Outcome.of(polished).behind(nothing)

    def _free(self, filling: Filling) -> Passes[Settled]:
        """Returns what the model writes behind the prefix with nothing pinned behind it."""
        means, gap, cache = self._means, filling.task.canvas.gaps[0], filling.cache
        tail = filling.task.canvas.ids[: gap.start]
        n_slots = min(len(gap) + ECHO_TOKENS, means.model.config.canvas_length - len(tail))
        hole = means.infill.mask_token_id or 0
        canvas = lay_out([tail, []], [n_slots], len(tail) + n_slots, hole=hole, pad=0)
        length = cache.length
        self._quote(filling)
        try:
            return (
                yield from settle(
                    means.model,
                    cache,
                    means.begin(replace(filling.task, canvas=canvas, n_rows=1, single_line=False)),
                    means.generation.max_denoising_steps,
                    filling.is_cancelled,
                    filling.on_step,
                )
            )
        finally:
            cache.truncate(length)

    @torch.inference_mode()
    def _quote(self, filling: Filling) -> None:
        """Lets the cache hold, behind the context, the quote of what follows that the checkpoint was trained on."""
        ids = quote([], filling.prompt.after, self._means.infill)
        if ids:
            device = self._means.model.embed_tokens.weight.device
            self._means.model.encode(torch.tensor([ids], device=device), filling.cache)

    def _polished(self, filling: Filling, ids: list[int]) -> Passes[Settled]:
        """Returns the draft after a few steps with what follows pinned behind it.

        A model whose noise is a mask has never seen a draft that may be wrong: it fills the length anew.
        """
        means, n_slots = self._means, self._means.model.config.canvas_length
        canvas = resized(filling.prompt, len(ids), n_slots, means.infill, means.tokens.pad_token_id or 0)
        task = replace(filling.task, canvas=canvas, n_rows=1)
        n_steps = means.generation.max_denoising_steps
        if means.infill.noise == "uniform":
            n_steps = min(POLISH_STEPS, n_steps)
            generation = msgspec.structs.replace(means.generation, max_denoising_steps=n_steps)
            means = replace(means, generation=generation)
        settling = means.begin(task)
        if means.infill.noise == "uniform":
            ids_1G = torch.tensor([ids], device=settling.order.slots_BG.device)
            settling.order.slots_BG = ids_1G
            settling.soft_BGH = means.model.embed(ids_1G)
        settled = yield from settle(
            means.model, filling.cache, settling, n_steps, filling.is_cancelled, filling.on_step
        )
        return replace(settled, is_complete=settled.is_complete or settled.n_steps == n_steps)


def cut_at_echo(text: str, following: str, single_line: bool) -> str | None:
    """Returns a draft up to where it says what follows the gap, None where it never does.

    Within one line that is the rest of the line, or the line's end where there is none; of several lines the rest of
    the line, or else the first line below that is not blank.
    """
    rest, _, below = following.partition("\n")
    if single_line:
        line, line_break, _ = text.partition("\n")
        if rest.strip():
            place = line.rfind(rest.rstrip())
            return line[:place] if place >= 0 else None
        return line if line_break else None
    if rest.strip():
        place = text.find(rest.rstrip())
        return text[:place] if place >= 0 else None
    first = next((line for line in below.split("\n") if line.strip()), None)
    lines = text.split("\n")
    place = next((n for n, line in enumerate(lines) if n and line.rstrip() == (first or "").rstrip()), 0)
    return "\n".join(lines[:place]).rstrip() if first is not None and place else None
