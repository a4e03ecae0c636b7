"""Ways to fill a gap with one checkpoint's weights: the engine as it ships, and the baselines beside it.

Every method finds its prefix warm: what stands before the gap is in the KV cache before the clock starts, as it is
while somebody types.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import msgspec
import torch

from midspan_engine.causal import continue_greedily
from midspan_engine.engine import Engine
from midspan_engine.evaluation.cases import Case, name_of
from midspan_engine.healing import GapRules
from midspan_engine.prompt import Prompt
from midspan_engine.protocol import ONE_LINE_TOKENS, SEVERAL_LINES_FACTOR, Candidate, Fill, Lend
from midspan_engine.training.corpus import SourceFile

EARLY_MS = 150
"""When methods are compared at equal time, in milliseconds after the key: the limit below which an answer feels
immediate lies at 100 to 200 ms."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one method made of one case."""

    text: str
    confidence: float
    ms: float
    steps: int
    """Passes of the model: denoising steps, or tokens of a method that writes one at a time; 0 where unknown."""
    early_text: str | None = None
    """What there was after EARLY_MS; None where that is not known."""


Method = Callable[[Case], Attempt]


PARTS: Mapping[str, Mapping[str, object]] = {
    "canvas alone": {"causal_weight": 0.0},
    "encoder alone": {"sure_confidence": 1e-9},
    "nothing repeated": {"repeat_weights": (), "workspace_weights": ()},
    "no rivals": {"rival_passes": 0},
    "its file alone": {"workspace_weights": ()},
}
"""The engine without some of its parts, as changes of infill_config.json; for checkpoints with a vote."""

FIXED_LENGTHS = (8, 16, 32)
"""Slots of a gap where nobody looks for its length."""


class Methods:
    """The methods by name, over one loaded engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._healing = HealingInLine(engine.tokens, engine.infill.blank_token_id)
        self._oracle = self._variant({} if engine.infill.finds_length == "blanks" else {"length": "fixed"})
        self._oracle.rules = GapRules(engine.tokens, None)  # no blank: every slot is spelled
        self.by_name: Mapping[str, Method] = {
            "midspan": self.canvas,
            "midspan, length told": self.oracle_length,
            "without suffix": self.without_suffix,
            "causal": self.causal,
        }

    def parts(self) -> dict[str, Method]:
        """Returns the engine without some of its parts, by name."""
        engine = self._engine
        return {name: self._changed(change) for name, change in PARTS.items() if engine.infill.causal_weight > 0}

    def lengths(self) -> dict[str, Method]:
        """Returns ways to find the length of a gap, by name: the canvas alone and, but for the last, without blanks.

        Each is asked once, and carried through.
        """

        def way(length: str, n_slots: Callable[[Case], int]) -> Method:
            other = self._variant({"causal_weight": 0.0, "length": length})
            return lambda case: self._ask(other, case, self._request(case, n_slots(case)))

        found = {"length told": way("fixed", self._n_slots)}
        found |= {f"{n_tokens} slots": way("fixed", lambda case, n=n_tokens: n) for n_tokens in FIXED_LENGTHS}  # type: ignore[misc]
        found |= {name: way(name, n_tokens_for) for name in ("probe", "echo")}
        if self._engine.infill.blank_token_id is not None:
            found["blanks"] = way("blanks", n_tokens_for)
        return found

    def _changed(self, change: Mapping[str, object]) -> Method:
        other = self._variant(change)
        return lambda case: self._fill(other, case, n_tokens_for(case))

    def _variant(self, change: Mapping[str, object]) -> Engine:
        """Returns an engine of the same weights and caches whose infill_config.json says something else."""
        return self._engine.with_infill(msgspec.structs.replace(self._engine.infill, **change))

    def _n_slots(self, case: Case) -> int:
        """Returns how many slots the true text takes, what has to be written again included."""
        return len(self._engine.tokens.encode(self._split(case)[1] + case.truth))

    def canvas(self, case: Case) -> Attempt:
        """Fills the gap as the front end asks for it, every answer carried through whatever its confidence."""
        return self._fill(self._engine, case, n_tokens_for(case))

    def oracle_length(self, case: Case) -> Attempt:
        """Fills a gap of exactly as many tokens as the true text has, none of them blank.

        As far as the checkpoint's gaps go: longer ones are cut there.
        """
        return self._fill(self._oracle, case, self._n_slots(case))

    def without_suffix(self, case: Case) -> Attempt:
        """Fills the gap while nothing is known of what follows, and cuts the answer where that begins."""
        unseen = replace(case, suffix="")
        attempt = self._fill(self._engine, unseen, n_tokens_for(case), suffix_is_cut=True)
        early = attempt.early_text
        return replace(
            attempt,
            text=cut_at_suffix(attempt.text, case),
            early_text=None if early is None else cut_at_suffix(early, case),
        )

    def causal(self, case: Case) -> Attempt:
        """Continues the prefix token by token with the encoder, healed like the canvas.

        One line ends with a line break, several lines end as `is_block_over` says. Where the gap ends inside the line,
        the continuation is cut where the rest of the line begins in it, which favours this baseline.
        """
        engine = self._engine
        prompt, required = self._split(case)
        ids = [*prompt.context, *prompt.canvas.ids[: prompt.canvas.gaps[0].start]]
        cache, _ = engine.prefixes.encode(case.name, ids[:-1])
        spellings, healed = engine.tokens.spellings, required.encode()
        written: list[int] = []
        n_early = 0
        started = time.perf_counter()

        def is_end(token: int) -> bool:
            nonlocal n_early
            text = b"".join(spellings[index] for index in (*written, token)).decode(errors="replace")
            if not spellings[token] or ("\n" in text if case.is_one_line else is_block_over(text, case)):
                return True
            written.append(token)
            n_early += time.perf_counter() < started + EARLY_MS / 1e3
            return False

        found, confidences = continue_greedily(
            engine.model,
            cache,
            ids[-1],
            self._healing if case.is_one_line else engine.rules,
            healed,
            is_end,
            n_tokens_for(case),
        )
        ms = (time.perf_counter() - started) * 1e3

        def text_of(n_tokens: int) -> str:
            spelled = b"".join(spellings[token] for token in found[:n_tokens])[len(healed) :]
            return cut_at_suffix(spelled.decode(errors="replace"), case)

        # Tokens that heal are not shown to `is_end`; they come first.
        early = text_of(len(found) if ms <= EARLY_MS else len(found) - len(written) + n_early)
        return Attempt(text_of(len(found)), math.prod(confidences), ms, len(found), early)

    def n_tokens(self, text: str) -> int:
        """Returns the length of a text in the checkpoint's tokens."""
        return len(self._engine.tokens.encode(text))

    def prompt_text(self, case: Case) -> str:
        """Returns the text before the gap as far back as the checkpoint reads it."""
        prompt, required = self._split(case)
        ids = [*prompt.context, *prompt.canvas.ids[: prompt.canvas.gaps[0].start]]
        return self._engine.tokens.decode(ids) + required

    def _split(self, case: Case) -> tuple[Prompt, str]:
        """Returns a case's prompt and the text that its gap has to write again."""
        prompt = self._engine.prompt_for(case.request(), n_gap=1)
        return prompt, prompt.required[0].decode()

    def _fill(self, engine: Engine, case: Case, n_tokens: int, *, suffix_is_cut: bool = False) -> Attempt:
        """Fills a case, and says what there was early: asked again with that deadline where it took longer."""
        request = msgspec.structs.replace(self._request(case, n_tokens), suffix_is_cut=suffix_is_cut)
        whole = self._ask(engine, case, request)
        hasty = msgspec.structs.replace(request, deadline_ms=EARLY_MS)
        early = whole if whole.ms <= EARLY_MS else self._ask(engine, case, hasty)
        return replace(whole, early_text=early.text)

    def _request(self, case: Case, n_tokens: int) -> Fill:
        return case.request(single_line=case.is_one_line, max_tokens=n_tokens)

    def _ask(self, engine: Engine, case: Case, request: Fill) -> Attempt:
        """Returns the best answer to a request whose prefix is warm."""
        engine.prefixes.encode(case.name, self._split(case)[0].context)
        filled = engine.fill(request, received=time.perf_counter(), is_cancelled=lambda: False)
        best = filled.candidates[0] if filled.candidates else Candidate(gaps=("",), confidence=0.0)
        return Attempt(best.text, best.confidence, filled.stats.ms, filled.stats.steps + filled.stats.encoder_steps)


def lend(engine: Engine, files: Iterable[SourceFile]) -> None:
    """Lets an engine look at files as in an editor whose workspaces are their packages."""
    for file in files:
        engine.lend(Lend(workspace=file.package, file=name_of(file), text=file.text))


class HealingInLine(GapRules):
    """Lets the token that heals break no line, as on a canvas of one line; the tokens behind it may, and end the text.

    Otherwise a prefix that ends with a line break would be healed by two of them, and the answer be empty.
    """

    def constrain(self, z_GV: torch.Tensor, required: bytes, single_line: bool) -> torch.Tensor:
        """Returns the logits of a gap as a `GapRules` does."""
        return super().constrain(z_GV, required, single_line or bool(required))


def n_tokens_for(case: Case) -> int:
    """Returns how many tokens an answer may take: as many as the front end asks for."""
    return ONE_LINE_TOKENS * (1 if case.is_one_line else SEVERAL_LINES_FACTOR)


def cut_at_suffix(text: str, case: Case) -> str:
    """Returns `text` up to where what follows the gap begins in it; all of it when that does not.

    Of a gap inside a line that is the rest of the line, of a gap that ends a line the line break, and of several lines
    the next line that is not blank or the end of the block (see `is_block_over`).
    """
    rest, _, below = case.suffix.partition("\n")
    if case.is_one_line:
        text = text.split("\n", 1)[0]
    if rest.strip():
        place = text.rfind(rest) if case.is_one_line else text.find(rest)
        return text[:place] if place >= 0 else text
    lines = text.split("\n")
    n_kept = next((n for n, line in enumerate(lines) if n and _ends_block(line, lines[0], case, below)), len(lines))
    return "\n".join(lines[:n_kept])


def is_block_over(text: str, case: Case) -> bool:
    """Says whether a prefix-only continuation has left the block: it reached what follows the gap, or less indentation.

    Without a suffix nothing else says where several lines end; knowing the suffix here favours such a method.
    """
    return "\n" in text and len(cut_at_suffix(text, case)) < len(text)


def _ends_block(line: str, first: str, case: Case, below: str) -> bool:
    if not line.strip():
        return False
    following = next((one for one in below.split("\n") if one.strip()), None)
    start = case.prefix[case.prefix.rfind("\n") + 1 :] + first
    return line == following or _indentation(line) < _indentation(start)


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())
