"""Ways to fill a gap with the same weights: the engine as it ships, and the baselines beside it."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import msgspec

from midspan_engine.causal import continue_greedily
from midspan_engine.engine import Engine
from midspan_engine.evaluation.cases import Case
from midspan_engine.prompt import build_prompt
from midspan_engine.protocol import Fill


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one method made of one case."""

    text: str
    confidence: float
    ms: float
    steps: int


class Methods:
    """The methods by name, over one loaded engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        blind = msgspec.structs.replace(engine.infill, head_tokens=0)
        self._blind_engine = Engine(engine.model, engine.tokens, blind, engine.generation)
        self.by_name = {"midspan": self.canvas, "without suffix": self.without_suffix, "causal": self.causal}

    def canvas(self, case: Case) -> Attempt:
        """Fills the gap as the language server asks for it."""
        return self._fill(self._engine, case)

    def without_suffix(self, case: Case) -> Attempt:
        """Fills the gap on a canvas that says nothing of what follows, cut at the line's end."""
        attempt = self._fill(self._blind_engine, case)
        return replace(attempt, text=cut_at_suffix(attempt.text, case))

    def _fill(self, engine: Engine, case: Case) -> Attempt:
        parts = (case.prefix, case.suffix)
        request = Fill(id=0, document=case.name, parts=parts, max_tokens=engine.infill.gap_tokens)
        filled = engine.fill(request, received=time.perf_counter(), is_cancelled=lambda: False)
        if not filled.candidates:
            return Attempt("", 0.0, filled.stats.ms, filled.stats.steps)
        best = filled.candidates[0]
        return Attempt(best.text, best.confidence, filled.stats.ms, filled.stats.steps)

    def causal(self, case: Case) -> Attempt:
        """Continues the prefix token by token with the encoder, healed like the canvas, up to the line's end.

        Where the gap ends inside the line, the continuation is cut where the rest of the line begins in it, which
        favours this baseline.
        """
        engine, started = self._engine, time.perf_counter()
        prompt = build_prompt(
            (case.prefix, case.suffix), engine.tokens, engine.infill, n_gap=1, n_slots=engine.model.config.canvas_length
        )
        gap = prompt.canvas.gaps[0]
        ids = [*prompt.context, *prompt.canvas.ids[: gap.start]]
        cache, _ = engine.prefixes.encode(case.name, ids[:-1])
        spellings = engine.tokens.spellings
        found, confidences = continue_greedily(
            engine.model,
            cache,
            ids[-1],
            engine.rules,
            prompt.required[0],
            lambda token: b"\n" in spellings[token] or not spellings[token],
            engine.infill.gap_tokens,
        )
        text = b"".join(spellings[token] for token in found)[len(prompt.required[0]) :].decode(errors="replace")
        ms = (time.perf_counter() - started) * 1e3
        return Attempt(cut_at_suffix(text, case), math.prod(confidences), ms, len(found))


def cut_at_suffix(text: str, case: Case) -> str:
    """Returns `text` up to where the rest of the gap's line begins in it; all of it when it does not."""
    rest = case.suffix.split("\n", 1)[0]
    place = text.rfind(rest) if rest.strip() else -1
    return text[:place] if place >= 0 else text
