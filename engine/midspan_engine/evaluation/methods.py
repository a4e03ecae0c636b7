"""Ways to fill a gap with the same weights: the engine as it ships, and the baselines beside it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from midspan_engine.causal import continue_greedily
from midspan_engine.engine import Engine
from midspan_engine.evaluation.cases import Case
from midspan_engine.healing import GapRules
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
        self._rules = GapRules(engine.tokens, engine.infill.blank_token_id)
        self.by_name = {"midspan": self.canvas, "without suffix": self.without_suffix, "causal": self.causal}

    def canvas(self, case: Case) -> Attempt:
        """Fills the gap as the language server asks for it."""
        return self._fill(case, free_suffix=False)

    def without_suffix(self, case: Case) -> Attempt:
        """Fills the gap on a canvas that says nothing of what follows, cut at the line's end."""
        return self._fill(case, free_suffix=True)

    def _fill(self, case: Case, *, free_suffix: bool) -> Attempt:
        request = Fill(id=0, document=case.name, parts=(case.prefix, case.suffix), max_tokens=self._engine.infill.gap_tokens)
        filled = self._engine.fill(
            request, received=time.perf_counter(), is_cancelled=lambda: False, free_suffix=free_suffix
        )
        if not filled.candidates:
            return Attempt("", 0.0, filled.stats.ms, filled.stats.steps)
        best = filled.candidates[0]
        text = cut_at_suffix(best.text, case) if free_suffix else best.text
        return Attempt(text, best.confidence, filled.stats.ms, filled.stats.steps)

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
            self._rules,
            prompt.required[0],
            lambda token: b"\n" in spellings[token] or not spellings[token],
            engine.infill.gap_tokens,
        )
        text = b"".join(spellings[token] for token in found)[len(prompt.required[0]) :].decode(errors="replace")
        confidence = 1.0
        for value in confidences:
            confidence *= value
        ms = (time.perf_counter() - started) * 1e3
        return Attempt(cut_at_suffix(text, case), confidence, ms, len(found))


def cut_at_suffix(text: str, case: Case) -> str:
    """Returns `text` up to where the rest of the gap's line begins in it; all of it when it does not."""
    rest = case.suffix.split("\n", 1)[0]
    place = text.rfind(rest) if rest.strip() else -1
    return text[:place] if place >= 0 else text
