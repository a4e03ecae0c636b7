"""What denoised canvases offer: the texts of their gaps, without those that nobody could use."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

import torch

from midspan_engine.chat import cut_drift
from midspan_engine.config import GenerationConfig, InfillConfig
from midspan_engine.denoise import Settled
from midspan_engine.prompt import Prompt
from midspan_engine.protocol import Candidate
from midspan_engine.said_twice import says_again
from midspan_engine.tokens import Tokens


@dataclass(frozen=True, slots=True)
class Offer:
    """The answers to one fill, whose gaps lie between the `parts` of its document."""

    tokens: Tokens
    infill: InfillConfig
    generation: GenerationConfig
    prompt: Prompt
    parts: Sequence[str]
    is_cut_later: bool = False
    """Whether whoever asks takes off what a text says again, as an edit does for each of its gaps."""

    def is_worth(self, ids: Sequence[int]) -> bool:
        """Tells whether the tokens of the first gap, complete, are a text that can be offered."""
        text = self._text(ids, self.prompt.required[0], is_complete=True)
        return text is not None and not self._says_again(self.parts[0], text, self.parts[1])

    def candidates(self, canvases: Sequence[Settled]) -> list[Candidate]:
        """Contracts the blanks, takes the healed text off, drops duplicates and what cannot be offered; best first.

        Of a draft that was cut off, each gap keeps its accepted slots from the left.
        """
        found: dict[tuple[str, ...], Candidate] = {}
        for settled in canvases:
            for candidate in self._of_canvas(settled):
                known = found.setdefault(candidate.gaps, candidate)
                found[candidate.gaps] = max(known, candidate, key=lambda each: each.confidence)
        return sorted(found.values(), key=lambda each: -each.confidence)

    def _of_canvas(self, settled: Settled) -> Iterator[Candidate]:
        sizes = [len(gap) for gap in settled.canvas.gaps]
        kept_BG = torch.ones_like(settled.accepted_BG) if settled.is_complete else settled.accepted_BG
        for draft_G, kept_G, confidence_G in zip(settled.draft_BG, kept_BG, settled.confidence_BG, strict=True):
            n_kept = [int(kept.long().cumprod(0).sum()) for kept in kept_G.split(sizes)]
            ids = [draft[:n].tolist() for draft, n in zip(draft_G.split(sizes), n_kept, strict=True)]
            texts = [
                self._text(slots, required, settled.is_complete)
                for slots, required in zip(ids, self.prompt.required, strict=True)
            ]
            gaps = tuple(text for text in texts if text is not None)
            if len(gaps) == len(texts) and not any(map(self._says_again, self.parts, gaps, self.parts[1:])):
                of_gaps = [float(c[:n].prod()) for c, n in zip(confidence_G.split(sizes), n_kept, strict=True)]
                each = tuple(min(1.0, p) ** self.infill.confidence_power for p in of_gaps)
                yield Candidate(gaps=gaps, confidence=math.prod(each), confidences=each, complete=settled.is_complete)

    def _says_again(self, before: str, text: str, after: str) -> bool:
        return not self.is_cut_later and says_again(before, text, after)

    def _text(self, ids: Sequence[int], required: bytes, is_complete: bool) -> str | None:
        """Returns what a gap's tokens add to its healed text; None when they do not repeat that or are no UTF-8.

        Of a reply in a conversation what comes behind its end is left out.
        """
        fence = self.prompt.fence
        if fence:
            ids = list(takewhile(lambda token: token not in self.generation.eos_token_ids, ids))
        spelled = b"".join(self.tokens.spellings[token] for token in ids)
        if not spelled.startswith(required):
            return None
        try:
            text = spelled[len(required) :].decode()
            return cut_drift(text, fence) if fence else text
        except UnicodeDecodeError as error:
            is_cut = not is_complete and error.reason == "unexpected end of data"
            return spelled[len(required) :][: error.start].decode() if is_cut else None
