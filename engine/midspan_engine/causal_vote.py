"""The encoder's vote: with the tied output head it is a language model, which reads the suffix quoted before the gap.

It predicts a token in a fraction of a decoder pass, so what it alone is sure of is committed at once. Where it is in
doubt the canvas is denoised; it drafts a run of tokens, one encoder pass reads the run, and their log-probabilities
are averaged slot by slot: what the encoder says of a slot holds as long as the slots before it got the tokens that it
has read. The encoder is the better-trained half of a small checkpoint, since every token of a text is a target for it;
what the document repeats is mixed into what it says.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from midspan_engine.causal_reader import CausalReader
from midspan_engine.config import InfillConfig
from midspan_engine.healing import GapRules
from midspan_engine.left_to_right import LeftToRight
from midspan_engine.prompt import quote
from midspan_engine.repeats import Repeats

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
        pad_token_id: int,
    ) -> None:
        assert infill.blank_token_id is not None, "the vote needs to know how a gap ends"
        self._infill, self._blank, self._pad = infill, infill.blank_token_id, pad_token_id
        self._rules, self._reader, self._repeats_for = rules, reader, repeats
        self._repeats: dict[tuple[int, int], Repeats] = {}
        """By row and gap: what stands in the gaps before one may be repeated in it."""

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
        draft = repeats.draft(order.committed(row, gap), MAX_DRAFT) if repeats is not None else []
        n_back = order.half_given(row, gap)
        z_DV = self._read(order, row, gap, draft, n_back)
        if n_back:
            self._weigh(z_DV[0, None], order, row, gap, n_back)
            z_DV = z_DV[n_back:]
        for slot in range(len(draft) + 1):
            z_1V = self._rules.constrain(z_DV[slot, None], 0, order.required(row, gap), order.task.single_line)
            confidence, token = self._repeated(z_1V, order, row, gap, [])[0].softmax(-1).max(-1)
            if confidence < least:
                return False
            order.commit(row, gap, int(token), float(confidence))
            if draft[slot : slot + 1] != [int(token)] or not order.open_slots(row, gap):
                break
        return True

    def _weigh(self, z_1V: torch.Tensor, order: LeftToRight, row: int, gap: int, n_back: int) -> None:
        """Tells anew how probable the token is in which typed text ends: by then it was that of any text."""
        committed, required = order.committed(row, gap), order.task.required[gap]
        left, token = committed[:-n_back], committed[-n_back]
        for given in left:
            required = self._rules.rest(required, given)
        p_1V = self._rules.constrain(z_1V, 0, required, order.task.single_line).softmax(-1)
        repeats = self._repeats_of(order, row, gap)
        order.weigh(row, gap, float((p_1V if repeats is None else repeats.mix(p_1V, [left]))[0, token]))

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
        weight = self._infill.causal_weight
        causal_DV = self._read(order, row, gap, draft[:-1])
        mixed_DV = (1 - weight) * z_DV[: len(draft)].log_softmax(-1) + weight * causal_DV.log_softmax(-1)
        mixed_DV = self._repeated(mixed_DV, order, row, gap, draft[:-1])
        agreed = zip(mixed_DV.argmax(-1).tolist(), draft, strict=True)
        n_read = next((slot + 1 for slot, (a, b) in enumerate(agreed) if a != b), len(draft))
        return mixed_DV[:n_read]

    def _read(self, order: LeftToRight, row: int, gap: int, draft: list[int], n_back: int = 0) -> torch.Tensor:
        """Returns the encoder's logits [D + 1, V] of the frontier of a gap and of the slots behind each draft token.

        Before them, those of the last `n_back` slots that are committed.
        """
        canvas, own = order.row(row), order.task.canvas.gaps[gap]
        hidden = {slot for later in order.task.canvas.gaps[gap + 1 :] for slot in later}
        following = [canvas[slot] for slot in range(own.stop, len(canvas)) if slot not in hidden]
        following = [token for token in following if token != self._pad]
        before = [token for token in canvas[: own.start] if token != self._blank]
        left = quote(before, following, self._infill) + order.committed(row, gap)
        return self._reader.logits(left + draft, len(left) - 1 - n_back)

    def _repeated(self, z_DV: torch.Tensor, order: LeftToRight, row: int, gap: int, draft: list[int]) -> torch.Tensor:
        """Returns log-probabilities of the same slots with what the document repeats mixed in; -inf stays."""
        repeats = self._repeats_of(order, row, gap)
        if repeats is None:
            return z_DV
        committed = order.committed(row, gap)
        p_DV = repeats.mix(z_DV.softmax(-1), [committed + draft[:n] for n in range(len(draft) + 1)])
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
