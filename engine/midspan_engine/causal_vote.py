"""The encoder's vote: the canvas drafts a run of tokens, one causal pass reads it and has its say on each of them.

The encoder with the tied output head is a language model of the text before a slot; on a small checkpoint it is the
better-trained half. The canvas knows what follows. Their log-probabilities are averaged, slot by slot: what the
encoder says of a slot holds as long as the slots before it got the tokens that it has read.
"""

from __future__ import annotations

import torch

from midspan_engine.config import InfillConfig
from midspan_engine.kv import KVCache
from midspan_engine.models.diffusion_gemma import DiffusionGemma
from midspan_engine.order import Order
from midspan_engine.tokens import Tokens

MAX_DRAFT = 6
"""Slots behind the frontier that are read in one pass: chosen; a fill of 12 tokens takes 7 to 8 steps."""
_UNREAD = 1e-3
"""Scales the logits of slots that the vote has not read: their best token stays, but nobody is sure of it."""


class CausalVote:
    """Mixes the encoder's opinion into the logits of the slots next to be committed."""

    def __init__(self, model: DiffusionGemma, tokens: Tokens, infill: InfillConfig) -> None:
        assert infill.blank_token_id is not None, "the vote needs to know how a gap ends"
        self._model, self._weight, self._blank = model, infill.causal_weight, infill.blank_token_id
        device = model.embed_tokens.weight.device
        self._is_break_V = torch.zeros(model.config.vocab_size, dtype=torch.bool, device=device)
        for index, spelling in enumerate(tokens.spellings):
            self._is_break_V[index] = spelling[:1] in (b"\n", b"\r")
        self._ends = {tokens.eos_token_id, tokens.pad_token_id}

    def mix(self, z_BGV: torch.Tensor, order: Order, canvas_BC: torch.Tensor, cache: KVCache) -> torch.Tensor:
        """Returns logits [B, G, V] of the canvas with the vote mixed into the leftmost open gap of each row.

        `z_BGV` are the constrained logits of this step, `canvas_BC` what the decoder has seen,
        `cache` the context in front of it; it is as long at the end as before.
        """
        mixed_BGV = z_BGV * _UNREAD
        for row, canvas in enumerate(canvas_BC.tolist()):
            first = 0
            for gap in order.task.canvas.gaps:
                known = order.known_BG[row, first : first + len(gap)].tolist()
                if not all(known):
                    start = known.index(False)
                    frontier = first + start
                    z_DV = z_BGV[row, frontier : first + len(gap)][: MAX_DRAFT + 1]
                    left = [token for token in canvas[: gap.start + start] if token != self._blank]
                    if left:
                        z_DV = self._read(z_DV, left, canvas[gap.stop] if gap.stop < len(canvas) else None, cache)
                    mixed_BGV[row, frontier : frontier + len(z_DV)] = z_DV
                    break
                first += len(gap)
        return mixed_BGV

    def _read(self, z_DV: torch.Tensor, left: list[int], following: int | None, cache: KVCache) -> torch.Tensor:
        """Returns the mixed logits of the slots up to the first one where canvas and vote part, that one included."""
        draft = z_DV.argmax(-1).tolist()
        if self._blank in draft:
            draft = draft[: draft.index(self._blank) + 1]
        ids = torch.tensor([left + draft[:-1]], device=z_DV.device)
        length = cache.length
        hidden_DH = self._model.encode(ids, cache)[0, len(left) - 1 :]
        cache.truncate(length)
        causal_DV = self._vote(self._model.logits(hidden_DH).softmax(-1), following)
        mixed_DV = (1 - self._weight) * z_DV[: len(draft)].log_softmax(-1) + self._weight * causal_DV
        agreed = (mixed_DV.argmax(-1).tolist(), draft)
        n_read = next((slot + 1 for slot, (a, b) in enumerate(zip(*agreed, strict=True)) if a != b), len(draft))
        return mixed_DV[:n_read]

    def _vote(self, p_DV: torch.Tensor, following: int | None) -> torch.Tensor:
        """Returns log-probabilities in which the blank stands for "here comes what follows the gap"."""
        if following is None or following in self._ends or self._is_break_V[following]:
            p_DV[:, self._blank] = p_DV[:, self._is_break_V].sum(-1)
        else:
            p_DV[:, self._blank] = p_DV[:, following]
        return (p_DV + torch.finfo(torch.float32).tiny).log()
