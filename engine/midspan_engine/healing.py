"""Which tokens a gap slot may hold: token healing, line breaks and special ids as a mask on logits."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from midspan_engine.tokens import Tokens


@dataclass(frozen=True, slots=True)
class Allowance:
    """What the slots of a gap may hold. It lies where the logits are, and never waits for what a device computes."""

    forbidden_SV: torch.Tensor
    """For each number of required bytes that are spelled; the last row is for slots behind them."""
    n_bytes_V: torch.Tensor
    """How many bytes each token spells."""

    def constrain(self, z_GV: torch.Tensor) -> torch.Tensor:
        """Returns the logits [G, V] of one gap with forbidden tokens at -inf; changes them in place.

        The best of the tokens that fit what is required decides what the next slot must spell, until all of it is
        spelled.
        """
        n_required = len(self.forbidden_SV) - 1
        before_SV = z_GV[:n_required].clone()  # a slot spells at least one byte
        z_GV.masked_fill_(self.forbidden_SV[-1], -torch.inf)
        spelled_1 = torch.zeros(1, dtype=torch.int64, device=z_GV.device)
        for z_V, before_V in zip(z_GV, before_SV, strict=False):
            z_V.copy_(before_V.masked_fill(self.forbidden_SV.index_select(0, spelled_1)[0], -torch.inf))
            n_bytes_1 = self.n_bytes_V.index_select(0, z_V.argmax(-1, keepdim=True))
            spelled_1 = (spelled_1 + n_bytes_1).clamp(max=n_required)
        return z_GV


class GapRules:
    """The constraints on gap slots that a vocabulary allows to state.

    A healed gap begins with text that the document already has (the last piece before the cursor, which the model
    writes again); a single-line gap has no line break behind that text; no gap holds a special id but the blank.
    """

    def __init__(self, tokens: Tokens, blank_token_id: int | None) -> None:
        self._spellings = tokens.spellings
        by_spelling = sorted((spelling, index) for index, spelling in enumerate(tokens.spellings) if spelling)
        self._sorted = [spelling for spelling, _ in by_spelling]
        self._sorted_ids = torch.tensor([index for _, index in by_spelling])
        self._last_break = torch.tensor([max(s.rfind(b"\n"), s.rfind(b"\r")) for s in self._sorted])
        self._ids: defaultdict[bytes, list[int]] = defaultdict(list)
        for spelling, index in by_spelling:
            self._ids[spelling].append(index)
        self._n_bytes = torch.tensor([len(spelling) for spelling in tokens.spellings])
        special = torch.tensor([not spelling for spelling in tokens.spellings])
        if blank_token_id is not None:
            special[blank_token_id] = False
        breaks = torch.tensor([b"\n" in spelling or b"\r" in spelling for spelling in tokens.spellings])
        self._forbidden = {False: special, True: special | breaks}
        self._free: dict[tuple[bool, int, torch.device], Allowance] = {}

    def constrain(self, z_GV: torch.Tensor, required: bytes, single_line: bool) -> torch.Tensor:
        """Returns the logits [G, V] of one gap with forbidden tokens at -inf, see `Allowance`; changes them in place.

        `required` is what the gap's text must begin with.
        """
        n_slots, vocab_size = z_GV.shape
        return self.allowance(required, single_line, n_slots, vocab_size, z_GV.device).constrain(z_GV)

    def allowance(
        self, required: bytes, single_line: bool, n_slots: int, vocab_size: int, device: torch.device
    ) -> Allowance:
        """Returns what `n_slots` slots of a gap may hold whose text begins with `required`."""
        free = self._free_of(single_line, vocab_size, device)
        rows = []
        # where there is only one slot nothing of what is required is spelled before it
        for n_spelled in range(len(required) if n_slots > 1 else min(len(required), n_slots)):
            fitting = self.fitting(required[n_spelled:], single_line)
            if fitting.numel() == 0:
                break
            rows.append(torch.ones(vocab_size, dtype=torch.bool).index_fill_(0, fitting, False))
        if not rows:
            return free
        forbidden_SV = torch.cat([torch.stack(rows).to(device), free.forbidden_SV])
        return Allowance(forbidden_SV, free.n_bytes_V)

    def _free_of(self, single_line: bool, vocab_size: int, device: torch.device) -> Allowance:
        """Returns what a gap may hold of which nothing is required; kept, it is asked for at every step."""
        key = single_line, vocab_size, device
        if key not in self._free:
            n_unused = vocab_size - len(self._n_bytes)  # rows of the embedding that no token uses
            forbidden_1V = F.pad(self._forbidden[single_line], (0, n_unused), value=True)[None]
            self._free[key] = Allowance(forbidden_1V.to(device), F.pad(self._n_bytes, (0, n_unused)).to(device))
        return self._free[key]

    def is_required(self, required: bytes, token: int) -> bool:
        """Tells whether a token spells nothing but required text."""
        spelling = self._spellings[token]
        return bool(spelling) and required.startswith(spelling)

    def adds(self, required: bytes, tokens: Sequence[int]) -> bool:
        """Tells whether tokens, which fit, spell more than what is required."""
        return sum(len(self._spellings[token]) for token in tokens) > len(required)

    def rest(self, required: bytes, *tokens: int) -> bytes:
        """Returns what is still required after `tokens`, which fit."""
        return required[sum(len(self._spellings[token]) for token in tokens) :]

    def fitting(self, required: bytes, single_line: bool) -> torch.Tensor:
        """Returns the ids that spell a part of `required`, or all of it and more; never empty for byte-level BPE.

        A token of the required text may hold a line break, what it says behind that text may not in a single line.
        """
        parts = [index for length in range(1, len(required) + 1) for index in self._ids.get(required[:length], ())]
        first = bisect_right(self._sorted, required)
        stop = bisect_left(self._sorted, True, first, key=lambda spelling: not spelling.startswith(required))
        longer = self._sorted_ids[first:stop]
        if single_line:
            longer = longer[self._last_break[first:stop] < len(required)]
        return torch.cat([torch.tensor(parts, dtype=torch.int64), longer])
