"""Which tokens a gap slot may hold: token healing, line breaks and special ids as a mask on logits."""

from __future__ import annotations

from bisect import bisect_left

import torch

from midspan_engine.tokens import Tokens


class GapRules:
    """The constraints on gap slots that a vocabulary allows to state.

    A healed gap begins with text that the document already has (the last piece before the cursor, which the model
    writes again); a single-line gap has no line break behind that text; no gap holds a special id but the blank.
    """

    def __init__(self, tokens: Tokens, blank_token_id: int | None) -> None:
        self._spellings = tokens.spellings
        self._sorted = sorted((spelling, index) for index, spelling in enumerate(tokens.spellings) if spelling)
        self._blank = blank_token_id
        special = torch.tensor([not spelling for spelling in tokens.spellings])
        if blank_token_id is not None:
            special[blank_token_id] = False
        breaks = torch.tensor([b"\n" in spelling or b"\r" in spelling for spelling in tokens.spellings])
        self._forbidden = {False: special, True: special | breaks}

    def constrain(self, z_GV: torch.Tensor, start: int, required: bytes, single_line: bool) -> torch.Tensor:
        """Returns the logits [G, V] of one gap with forbidden tokens at -inf.

        `required` is what the gap's text must begin with from slot `start` on. Slot by slot the tokens that fit it
        are kept and the best of them decides what the next slot must spell, until `required` is spelled.
        """
        z_GV = z_GV.masked_fill(self._forbidden[single_line].to(z_GV.device), -torch.inf)
        for slot in range(start, len(z_GV)):
            if not required:
                break
            fitting = self.fitting(required, single_line)
            row = torch.full_like(z_GV[slot], -torch.inf)
            row[fitting] = z_GV[slot, fitting].nan_to_num(neginf=-1e4)
            z_GV[slot] = row
            required = self.rest(required, int(row.argmax()))
        return z_GV

    def rest(self, required: bytes, token: int) -> bytes:
        """Returns what is still required after `token`, which fits."""
        return required[len(self._spellings[token]) :]

    def fitting(self, required: bytes, single_line: bool) -> list[int]:
        """Returns the ids that spell a part of `required`, or all of it and more; never empty for byte-level BPE."""
        found = []
        for length in range(1, len(required) + 1):
            found += self._spelled(required[:length])
        first = bisect_left(self._sorted, (required, -1))
        for spelling, index in self._sorted[first:]:
            if not spelling.startswith(required):
                break
            more = spelling[len(required) :]
            if more and not (single_line and (b"\n" in more or b"\r" in more)):
                found.append(index)
        return found

    def _spelled(self, spelling: bytes) -> list[int]:
        first = bisect_left(self._sorted, (spelling, -1))
        found = []
        for candidate, index in self._sorted[first:]:
            if candidate != spelling:
                break
            found.append(index)
        return found
