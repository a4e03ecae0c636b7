"""How likely a text is where it stands: piece by piece from both sides, or as a whole with what follows.

From both sides every few pieces are hidden together and predicted in as many rows of one canvas pass; where the
checkpoint has a vote, the encoder, which reads the suffix quoted, is asked too. As a whole the encoder alone reads the
text and what follows: as a language model it finds lengths without having to be told any.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

import msgspec
import torch

from midspan_engine.causal_reader import CausalReader, of_tokens
from midspan_engine.denoise import condition
from midspan_engine.engine import Engine
from midspan_engine.kv import KVCache
from midspan_engine.noise import draw_noise
from midspan_engine.prompt import Prompt, heal, quote
from midspan_engine.protocol import Fill

N_ROWS = 4
"""Of so many pieces one is hidden in a row, the others are seen: chosen; more rows cost a pass of the decoder each."""
FOLLOWING_CHARACTERS = 80
"""Of what follows a text that is weighed against another: about two lines, 20 tokens. Chosen."""
CUT_NATS = 8.0
"""By which a shorter text must be more probable together with what follows: every text is less probable than its start.
Of 90 gaps inside of lines of library code 12 were right uncut, 16 with either 6 or 10. At the end of a line, where what
follows says little, cutting made some wrong.
"""
N_CUTS = 12
"""Places, from the right, at which the end of a text is looked for inside of a line: chosen, each costs a pass."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A word, a run of signs or of blanks, of a text."""

    start: int
    end: int
    log_probability: float
    """Nats, of all its tokens."""


class Likelihood:
    """Weighs texts where a request asks for them; every method raises Cancelled when the flag is seen."""

    def __init__(self, engine: Engine, request: Fill, is_cancelled: Callable[[], bool]) -> None:
        self._engine, self._request, self._is_cancelled = engine, request, is_cancelled

    @torch.inference_mode()
    def of_pieces(self, before: str, text: str, after: str) -> list[Piece]:
        """Returns the pieces of a text, which is no longer than a gap, with their likelihood given both sides."""
        tokens, infill = self._engine.tokens, self._engine.infill
        healed = heal(before, tokens)[1]
        whole = healed + text
        prompt, cache, ids = self._placed(before, whole, after)
        starts = tokens.piece_starts(whole)
        edges = [len(whole[:start].encode()) for start in starts]
        lengths = list(accumulate((len(tokens.spellings[token]) for token in ids), initial=0))
        piece_of = [max(bisect_right(edges, at) - 1, 0) for at in lengths[: len(ids)]]
        log_p_G = self._by_the_canvas(cache, prompt, ids, piece_of)
        if weight := infill.causal_weight:
            log_p_G = (1 - weight) * log_p_G + weight * self._by_the_encoder(cache, prompt, ids)
        found = []
        for index, (start, end) in enumerate(zip(starts, [*starts[1:], len(whole)], strict=True)):
            own = [slot for slot, piece in enumerate(piece_of) if piece == index]
            if own and end > len(healed):
                first = max(start, len(healed))
                found.append(Piece(first - len(healed), end - len(healed), float(log_p_G[own].sum())))
        return found

    @torch.inference_mode()
    def with_following(self, before: str, text: str, after: str) -> float:
        """Returns the log-probability (nats) of a text and of what follows it, given what stands before.

        What follows decides between texts: it is the more probable the better the text leads to it.
        """
        prompt, cache, _ = self._placed(before, "", after)
        tail = list(prompt.canvas.ids[: prompt.canvas.gaps[0].start])
        whole = prompt.required[0].decode() + text + after[:FOLLOWING_CHARACTERS]
        ids = self._engine.tokens.encode(whole)
        return float(CausalReader(self._engine.model, cache).log_probabilities(tail, ids).sum())

    @torch.inference_mode()
    def confidence(self, before: str, text: str, after: str) -> float:
        """Returns the probability of a text to an encoder that reads the suffix quoted, calibrated as a candidate's."""
        prompt, cache, ids = self._placed(before, heal(before, self._engine.tokens)[1] + text, after)
        log_p = float(self._by_the_encoder(cache, prompt, ids).sum())
        return math.exp(log_p * self._engine.infill.confidence_power)

    def best_start(self, before: str, text: str, after: str, *, or_nothing: bool) -> str:
        """Returns a text without an end that is in the way of what follows in its line, as when it says that already.

        With `or_nothing` no text at all may be what leads there best.
        """
        is_in_line = bool(after.partition("\n")[0].strip())
        starts = self._engine.tokens.piece_starts(text)[-N_CUTS:] if is_in_line else []
        shorter = {cut for at in starts if (cut := text[:at].rstrip())} | ({""} if or_nothing else set())
        weights = {cut: self.with_following(before, cut, after) for cut in sorted(shorter - {text})}
        best = max(weights, key=lambda cut: weights[cut], default=text)
        return best if best != text and weights[best] > self.with_following(before, text, after) + CUT_NATS else text

    def _placed(self, before: str, text: str, after: str) -> tuple[Prompt, KVCache, list[int]]:
        """Returns the canvas with a gap for a text, the cache of what stands before, and the tokens of the text."""
        engine = self._engine
        ids = engine.tokens.encode(text)
        # the tokens of what follows are wanted, not where the document ends
        asked = msgspec.structs.replace(self._request, parts=(before, after), held=(), suffix_is_cut=True)
        prompt = engine.prompt_for(asked, n_gap=len(ids))
        cache, _ = engine.prefixes.encode(asked.document, prompt.context, self._is_cancelled)
        return prompt, cache, ids[: len(prompt.canvas.gap_slots)]

    def _by_the_canvas(self, cache: KVCache, prompt: Prompt, ids: list[int], piece_of: list[int]) -> torch.Tensor:
        """Returns log-probabilities [G] of the tokens, each predicted in the row in which its piece is hidden."""
        model, infill = self._engine.model, self._engine.infill
        device = model.embed_tokens.weight.device
        slots_G = torch.tensor(prompt.canvas.gap_slots[: len(ids)], device=device)
        ids_G = torch.tensor(ids, device=device)
        n_rows = min(N_ROWS, piece_of[-1] + 1)
        row_G = torch.tensor(piece_of, device=device) % n_rows
        canvas_BC = torch.tensor([prompt.canvas.ids] * n_rows, device=device)
        hidden_BG = row_G == torch.arange(n_rows, device=device)[:, None]
        generator = torch.Generator(device).manual_seed(0)
        noise_BG = draw_noise(infill, tuple(hidden_BG.shape), model.config.vocab_size, generator, device)
        canvas_BC[:, slots_G] = torch.where(hidden_BG, noise_BG, ids_G)
        known_BC = torch.ones_like(canvas_BC, dtype=torch.bool)
        known_BC[:, slots_G] = ~hidden_BG
        soft_BCH = condition(model, canvas_BC, known_BC, slots_G, None)
        z_BGV = model.logits(model.decode(canvas_BC, cache, soft_BCH, slots_G))
        return of_tokens(z_BGV[row_G, torch.arange(len(ids), device=device)], ids)

    def _by_the_encoder(self, cache: KVCache, prompt: Prompt, ids: list[int]) -> torch.Tensor:
        """Returns log-probabilities [G] of the tokens, each given those before it and the quoted suffix."""
        infill = self._engine.infill
        tail, head = list(prompt.canvas.ids[: prompt.canvas.gaps[0].start]), prompt.after[: infill.head_tokens]
        left = quote(tail, head, infill)
        assert left, "a canvas that begins with its gap has at least the token that begins a text before it"
        return CausalReader(self._engine.model, cache).log_probabilities(left, ids)
