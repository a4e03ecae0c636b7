"""The encoder's vote: with the tied output head it is a language model, which reads the suffix quoted before the gap.

It predicts a token in a fraction of a decoder pass, so what it alone is sure of is committed at once. Where it is in
doubt the canvas is denoised; it drafts a run of tokens, one encoder pass reads the run, and their log-probabilities
are averaged slot by slot: what the encoder says of a slot holds as long as the slots before it got the tokens that it
has read. The encoder is the better-trained half of a small checkpoint, since every token of a text is a target for it;
what the document repeats is mixed into what it says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from midspan_engine.causal_reader import CausalReader
from midspan_engine.config import InfillConfig
from midspan_engine.healing import GapRules
from midspan_engine.left_to_right import LeftToRight
from midspan_engine.prompt import quote
from midspan_engine.repeats import Repeats
from midspan_engine.rivals import Beginning, IsWorth, Rivals

RepeatsFor = Callable[[list[int], list[int] | None], Repeats]
"""Takes the tokens between the first gap and one of the gaps, and those between it and the next, None for the last."""

MAX_DRAFT = 6
"""Slots behind the frontier that are read in one pass: chosen."""
_UNREAD = 1e-3
"""Scales the logits of slots that the vote has not read: their best token stays, but nobody is sure of it."""


class CausalVote:
    """What the encoder commits alone during one fill, and its opinion mixed into the canvas' logits."""

    def __init__(
        self,
        infill: InfillConfig,
        rules: GapRules,
        reader: CausalReader,
        repeats: RepeatsFor | None,
        is_worth: IsWorth,
        pad_token_id: int,
    ) -> None:
        assert infill.blank_token_id is not None, "the vote needs to know how a gap ends"
        self._infill, self._blank, self._pad = infill, infill.blank_token_id, pad_token_id
        self._rules, self._reader, self._repeats_for, self._is_worth = rules, reader, repeats, is_worth
        self._repeats: dict[tuple[int, int], Repeats] = {}
        """By row and gap: what stands in the gaps before one may be repeated in it."""
        self._rivals: Rivals | None = None
        """Of the one gap of a canvas of one row."""

    def run_ahead(
        self, order: LeftToRight, is_stopped: Callable[[], bool], tell: Callable[[], None] = lambda: None
    ) -> None:
        """Commits what the encoder is sure of in the leftmost open gap of each row, and tells after every pass.

        Token by token; where the document repeats itself, what would come next is read along in the same pass.
        """
        if self._infill.sure_confidence is None:
            return
        for row in range(order.task.n_rows):
            while (gap := order.open_gap(row)) is not None and not is_stopped():
                is_sure = self._commit_sure(order, row, gap, self._infill.sure_confidence)
                tell()
                if not is_sure:
                    break

    def _commit_sure(self, order: LeftToRight, row: int, gap: int, least: float) -> bool:
        """Commits tokens up to one that the draft did not foresee; False when there is doubt about one of them."""
        repeats = self._repeats_of(order, row, gap)
        committed, n_back = order.committed(row, gap), order.half_given(row, gap)
        draft = repeats.draft(committed, MAX_DRAFT) if repeats is not None else []
        z_DV = self._read(order, row, gap, committed + draft, len(committed) - n_back)
        if n_back:
            self._weigh(z_DV[0], order, row, gap, n_back)
            z_DV = z_DV[n_back:]
        for slot in range(len(draft) + 1):
            p_V = self._probabilities(z_DV[slot], order, row, gap, order.committed(row, gap))
            confidence, token = p_V.max(-1)
            if confidence < least:
                return False
            self._pass_over(order, p_V, int(token))
            order.commit(row, gap, int(token), float(confidence))
            if draft[slot : slot + 1] != [int(token)] or not order.open_slots(row, gap):
                break
        return True

    def _weigh(self, z_V: torch.Tensor, order: LeftToRight, row: int, gap: int, n_back: int) -> None:
        """Tells anew how probable the token is in which typed text ends: by then it was that of any text."""
        committed = order.committed(row, gap)
        p_V = self._probabilities(z_V, order, row, gap, committed[:-n_back])
        order.weigh(row, gap, float(p_V[committed[-n_back]]))

    def mix(self, z_BGV: torch.Tensor, order: LeftToRight) -> torch.Tensor:
        """Returns the constrained logits of a step with the vote mixed into the leftmost open gap of each row."""
        mixed_BGV = z_BGV * _UNREAD
        for row in range(order.task.n_rows):
            gap = order.open_gap(row)
            if gap is not None:
                slots = order.open_slots(row, gap)
                z_DV = self._mix(z_BGV[row, slots.start : slots.stop][: MAX_DRAFT + 1], order, row, gap)
                mixed_BGV[row, slots.start : slots.start + len(z_DV)] = z_DV
        return mixed_BGV

    def _mix(self, z_DV: torch.Tensor, order: LeftToRight, row: int, gap: int) -> torch.Tensor:
        """Returns the mixed logits of the slots up to the first one where canvas and vote part, that one included."""
        draft = z_DV.argmax(-1).tolist()
        if self._blank in draft:
            draft = draft[: draft.index(self._blank) + 1]
        weight, committed = self._infill.causal_weight, order.committed(row, gap)
        causal_DV = self._read(order, row, gap, committed + draft[:-1], len(committed))
        mixed_DV = (1 - weight) * z_DV[: len(draft)].log_softmax(-1) + weight * causal_DV.log_softmax(-1)
        mixed_DV = self._repeated(mixed_DV, self._repeats_of(order, row, gap), committed, draft[:-1])
        agreed = zip(mixed_DV.argmax(-1).tolist(), draft, strict=True)
        n_read = next((slot + 1 for slot, (a, b) in enumerate(agreed) if a != b), len(draft))
        self._pass_over(order, mixed_DV[0].softmax(-1), int(mixed_DV[0].argmax()))
        return mixed_DV[:n_read]

    def _pass_over(self, order: LeftToRight, p_V: torch.Tensor, taken: int) -> None:
        """Keeps what else the frontier of the only gap could have got."""
        task = order.task
        if not self._infill.rival_passes or task.n_rows > 1 or len(task.canvas.gaps) > 1:
            return
        if self._rivals is None:
            self._rivals = Rivals(len(task.canvas.gaps[0]), self._blank, self._infill.rival_passes)
        left = order.beginning(0, 0)
        self._rivals.pass_over(left, self._going_on(p_V, left.tokens, task.required[0]), taken)

    def _going_on(self, p_V: torch.Tensor, left: Sequence[int], required: bytes) -> torch.Tensor:
        """Returns probabilities without the end of a text that would add nothing: it is no rival of one that does."""
        if not self._rules.adds(required, left):
            p_V[self._blank] = 0
        return p_V

    def seek_rival(self, order: LeftToRight, is_stopped: Callable[[], bool], tell: Callable[[], None]) -> None:
        """Commits a text that was passed over, if the encoder finds one more probable than what the gap holds.

        Any other one counts as more probable where that could not be offered.
        """
        if self._rivals is None:
            return
        draft, task = order.beginning(0, 0), order.task
        bound = draft.cost if order.is_done and self._is_worth(draft.tokens) else math.inf
        if task.min_probability > 0:
            bound = min(bound, -math.log(task.min_probability))

        def read(left: Beginning) -> tuple[torch.Tensor, list[int]]:
            tokens, repeats = list(left.tokens), self._repeats_of(order, 0, 0)
            likely = repeats.draft(tokens, MAX_DRAFT)[: len(task.canvas.gaps[0]) - len(tokens) - 1] if repeats else []
            z_DV = self._read(order, 0, 0, tokens + likely, len(tokens))
            tell()
            p_DV = torch.empty_like(z_DV)
            for slot, z_V in enumerate(z_DV):
                before = tokens + likely[:slot]
                p_DV[slot] = self._going_on(self._probabilities(z_V, order, 0, 0, before), before, task.required[0])
            return p_DV, likely

        rival = self._rivals.best(list(draft.tokens), bound, read, self._is_worth, is_stopped)
        if rival is not None:
            order.take_back(0, 0)
            for token, probability in zip(rival.tokens, rival.probabilities, strict=True):
                order.commit(0, 0, token, probability)

    def _read(self, order: LeftToRight, row: int, gap: int, tokens: list[int], first: int) -> torch.Tensor:
        """Returns the encoder's logits [len(tokens) - first + 1, V] of the slots of a gap from `first` on.

        Up to the one behind `tokens`, with which the gap is read.
        """
        canvas, own = order.row(row), order.task.canvas.gaps[gap]
        hidden = {slot for later in order.task.canvas.gaps[gap + 1 :] for slot in later}
        following = [canvas[slot] for slot in range(own.stop, len(canvas)) if slot not in hidden]
        following = [token for token in following if token != self._pad]
        before = [token for token in canvas[: own.start] if token != self._blank]
        left = quote(before, following, self._infill)
        return self._reader.logits(left + tokens, len(left) - 1 + first)

    def _probabilities(
        self, z_V: torch.Tensor, order: LeftToRight, row: int, gap: int, left: Sequence[int]
    ) -> torch.Tensor:
        """Returns how probable each token is as the next one of a gap that begins with `left`, by what was read."""
        required = self._rules.rest(order.task.required[gap], *left)
        z_1V = self._rules.constrain(z_V[None], required, order.task.single_line)
        return self._repeated(z_1V, self._repeats_of(order, row, gap), list(left), [])[0].softmax(-1)

    def _repeated(self, z_DV: torch.Tensor, repeats: Repeats | None, left: list[int], draft: list[int]) -> torch.Tensor:
        """Returns log-probabilities of the slots behind `left` with what the document repeats mixed in; -inf stays."""
        if repeats is None:
            return z_DV
        p_DV = repeats.mix(z_DV.softmax(-1), [left + draft[:n] for n in range(len(draft) + 1)])
        return p_DV.log().masked_fill(z_DV == -torch.inf, -torch.inf)

    def _repeats_of(self, order: LeftToRight, row: int, gap: int) -> Repeats | None:
        """Returns what is repeated in an open gap; the gaps before it hold what they will."""
        if self._repeats_for is None:
            return None
        if (row, gap) not in self._repeats:
            canvas, gaps = order.row(row), order.task.canvas.gaps
            between = [token for token in canvas[gaps[0].start : gaps[gap].start] if token != self._blank]
            following = canvas[gaps[gap].stop : self._end(order, gap)] if gap + 1 < len(gaps) else None
            self._repeats[row, gap] = self._repeats_for(between, following)
        return self._repeats[row, gap]

    def _end(self, order: LeftToRight, gap: int) -> int:
        """Returns the slot in which the next gap starts, or the width of the canvas."""
        canvas = order.task.canvas
        return canvas.gaps[gap + 1].start if gap + 1 < len(canvas.gaps) else len(canvas.ids)
