"""Which tokens a gap slot may hold: token healing, line breaks and special ids as a mask on logits."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict

import torch
import torch.nn.functional as F

from midspan_engine.tokens import Tokens


class GapRules:
    """The constraints on gap slots that a vocabulary allows to state.

    A healed gap begins with text that the document already has (the last piece before the cursor, which the model
    writes again); a single-line gap has no line break behind that text; no gap holds a special id but the blank.
    """

    def __init__(self, tokens: Tokens, blank_token_id: int | None) -> None:
        self._spellings = tokens.spellings
        self._sorted = sorted((spelling, index) for index, spelling in enumerate(tokens.spellings) if spelling)
        self._ids: defaultdict[bytes, list[int]] = defaultdict(list)
        for spelling, index in self._sorted:
            self._ids[spelling].append(index)
        special = torch.tensor([not spelling for spelling in tokens.spellings])
        if blank_token_id is not None:
            special[blank_token_id] = False
        breaks = torch.tensor([b"\n" in spelling or b"\r" in spelling for spelling in tokens.spellings])
        self._forbidden = {False: special, True: special | breaks}

    def constrain(self, z_GV: torch.Tensor, start: int, required: bytes, single_line: bool) -> torch.Tensor:
        """Returns the logits [G, V] of one gap with forbidden tokens at -inf; changes them in place.

        `required` is what the gap's text must begin with from slot `start` on. Slot by slot the tokens that fit it
        are kept and the best of them decides what the next slot must spell, until `required` is spelled.
        """
        forbidden_V = self._forbidden[single_line].to(z_GV.device)
        n_unused = z_GV.shape[-1] - len(forbidden_V)  # rows of the embedding that no token uses
        before_SV = z_GV[start : start + len(required)].clone()  # a slot spells at least one byte
        z_GV.masked_fill_(F.pad(forbidden_V, (0, n_unused), value=True), -torch.inf)
        for z_V, before_V in zip(z_GV[start:], before_SV, strict=False):
            fitting = self.fitting(required, single_line) if required else []
            if not fitting:
                break
            z_V.fill_(-torch.inf)
            z_V[fitting] = before_V[fitting]  # a token of the required text may hold a line break
            required = self.rest(required, int(z_V.argmax()))
        return z_GV

    def is_required(self, required: bytes, token: int) -> bool:
        """Tells whether a token spells nothing but required text."""
        spelling = self._spellings[token]
        return bool(spelling) and required.startswith(spelling)

    def rest(self, required: bytes, token: int) -> bytes:
        """Returns what is still required after `token`, which fits."""
        return required[len(self._spellings[token]) :]

    def fitting(self, required: bytes, single_line: bool) -> list[int]:
        """Returns the ids that spell a part of `required`, or all of it and more; never empty for byte-level BPE."""
        found = [index for length in range(1, len(required) + 1) for index in self._ids.get(required[:length], ())]
        for rank in range(bisect_left(self._sorted, (required, -1)), len(self._sorted)):
            spelling, index = self._sorted[rank]
            if not spelling.startswith(required):
                break
            more = spelling[len(required) :]
            if more and not (single_line and (b"\n" in more or b"\r" in more)):
                found.append(index)
        return found
