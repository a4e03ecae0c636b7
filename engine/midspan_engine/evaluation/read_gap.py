"""A gap that holds a text already, as the canvas and the encoder read it slot by slot."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from midspan_engine.causal_reader import CausalReader
from midspan_engine.engine import Engine
from midspan_engine.evaluation.cases import Case
from midspan_engine.kv import KVCache
from midspan_engine.prompt import Prompt, quote
from midspan_engine.protocol import ONE_LINE_TOKENS


@dataclass(frozen=True, slots=True)
class ReadGap:
    """A case's gap of one line and the tokens of a text in it."""

    engine: Engine
    prompt: Prompt
    ids: list[int]
    """Of the healed text and the text itself, and the blank that ends it if there is room."""
    before: list[int]
    """The tokens of the canvas in front of the gap."""
    after: list[int]
    """Those behind it."""
    cache: KVCache
    reader: CausalReader

    @classmethod
    def of(cls, engine: Engine, case: Case, text: str) -> ReadGap:
        """Lays a text out in the gap of a case."""
        blank = engine.infill.blank_token_id
        assert blank is not None, "configs with a vote are checked for it"
        prompt = engine.prompt_for(case.request(), n_gap=ONE_LINE_TOKENS)
        gap, pinned = prompt.canvas.gaps[0], prompt.canvas.ids
        ids = [*engine.tokens.encode(prompt.required[0].decode() + text), blank][: len(gap)]
        after = [token for token in pinned[gap.stop :] if token != engine.tokens.pad_token_id]
        cache, _ = engine.prefixes.encode(case.name, prompt.context)
        return cls(engine, prompt, ids, list(pinned[: gap.start]), after, cache, CausalReader(engine.model, cache))

    def encoder(self, n_slots: int) -> torch.Tensor:
        """Returns the encoder's logits [D, V] of the first slots, each read with those before it."""
        left = quote(self.before, self.after, self.engine.infill)
        return self.reader.logits(left + self.ids[: n_slots - 1], len(left) - 1)

    def canvas(self, known: list[int]) -> torch.Tensor:
        """Returns the canvas' logits [B, G, V] of all slots, in rows that know the first so many tokens each."""
        model, gap = self.engine.model, self.prompt.canvas.gaps[0]
        rows_BC = torch.tensor([self.prompt.canvas.ids] * len(known))
        known_BC = torch.ones_like(rows_BC, dtype=torch.bool)
        known_BC[:, gap.start : gap.stop] = False
        for row, n_tokens in enumerate(known):
            rows_BC[row, gap.start : gap.start + n_tokens] = torch.tensor(self.ids[:n_tokens])
            known_BC[row, gap.start : gap.start + n_tokens] = True
        hidden_BCH = model.decode(rows_BC, self.cache, model.embed(rows_BC) * known_BC[..., None])
        return model.logits(hidden_BCH[:, gap.start : gap.start + len(self.ids)])
