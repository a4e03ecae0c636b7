"""The left-to-right order: every step commits a run of slots from the left end of what is still hidden.

Committed slots stay. The first blank token of a gap ends it: all slots behind it become blank. So the length is found
on the way, and surplus slots can never be accepted before the text (on small models the far blanks are the most
certain, and a confidence order collapses to empty answers).
"""

from __future__ import annotations

from itertools import pairwise

import torch

from midspan_engine.config import InfillConfig
from midspan_engine.errors import NO_NUMBERS, EngineError
from midspan_engine.healing import GapRules
from midspan_engine.order import Order, Task
from midspan_engine.rivals import Beginning
from midspan_kernels.row_logits import RowLogits, capped
from midspan_kernels.row_statistics import row_statistics


class LeftToRight(Order):
    """Known slots are the committed ones, and they are the answer; surplus slots count with a confidence of 1."""

    def __init__(self, task: Task, noise_BG: torch.Tensor, rules: GapRules, infill: InfillConfig) -> None:
        super().__init__(task, noise_BG)
        starts = [0]
        for gap in task.canvas.gaps:
            starts.append(starts[-1] + len(gap))
        self._spans = [range(a, b) for a, b in pairwise(starts)]
        self._frontiers = [[span.start for span in self._spans] for _ in range(task.n_rows)]
        self._required = [list(task.required) for _ in range(task.n_rows)]
        self._half_given: dict[tuple[int, int], int] = {}
        self._rules = rules
        self._blank, self._threshold = infill.blank_token_id, infill.commit_confidence
        self._is_first_step = True

    @property
    def is_done(self) -> bool:
        """Tells whether every slot of every row is committed."""
        return bool(self.known_BG.all())

    @property
    def is_hopeless(self) -> bool:
        """Tells whether what is committed is already too improbable in every row; it only gets less probable."""
        committed_BG = torch.where(self.known_BG, self.confidence_BG, 1.0)
        return bool((committed_BG.prod(-1) < self.task.min_probability).all())

    def go_on(self, task: Task) -> None:
        """Takes a task that requires more text. What the draft has of it is committed and certain: it is given."""
        super().go_on(task)
        self._half_given.clear()
        for row, frontiers in enumerate(self._frontiers):
            for gap, span in enumerate(self._spans):
                committed = frontiers[gap]
                frontiers[gap], self._required[row][gap] = span.start, task.required[gap]
                while (slot := frontiers[gap]) < span.stop:
                    token = int(self.draft_BG[row, slot])
                    is_given = self._rules.is_required(self._required[row][gap], token)
                    if slot >= committed and not is_given:
                        break
                    if self._required[row][gap] and not is_given:
                        self._half_given[row, gap] = slot
                    self._commit(row, gap, slot, token, 1.0 if is_given else float(self.confidence_BG[row, slot]))

    def constrain(self, logits: RowLogits) -> RowLogits:
        """Returns capped logits, fp32, with what the gaps' rules exclude forbidden in open slots."""
        z_BGV = capped(logits.z, logits.cap)
        for row, z_GV in enumerate(z_BGV):
            for gap, span in enumerate(self._spans):
                still_open_GV = z_GV[self._frontiers[row][gap] : span.stop]
                self._rules.constrain(still_open_GV, self._required[row][gap], self.task.single_line)
        return RowLogits(z_BGV)

    def advance(self, logits: RowLogits, leftmost_only: bool = False) -> None:
        """Commits the next run of each gap, or of the leftmost open one, by the constrained logits of this step.

        Raises EngineError when they are no numbers.
        """
        z_BGV = logits.z
        statistics = row_statistics(z_BGV)
        if statistics.entropy.isnan().any():
            raise EngineError(NO_NUMBERS)
        self.entropy_BG = torch.where(self.known_BG, 0.0, statistics.entropy)
        self.draft_BG = torch.where(self.known_BG, self.slots_BG, statistics.argmax)
        tokens, confidences = statistics.argmax.tolist(), statistics.confidence.tolist()
        for row in range(len(z_BGV)):
            leftmost = self.open_gap(row)
            for gap, span in enumerate(self._spans):
                start = self._frontiers[row][gap]
                if leftmost_only and gap != leftmost:
                    continue
                if self._is_first_step and row > 0:
                    self._commit(row, gap, start, *_ranked(z_BGV[row, start], row))
                else:
                    self._commit_run(row, gap, range(start, span.stop), tokens[row], confidences[row])
        self._is_first_step = False

    def open_gap(self, row: int) -> int | None:
        """Returns the leftmost gap of a row that is not done, None when all are."""
        return next((gap for gap, span in enumerate(self._spans) if self._frontiers[row][gap] < span.stop), None)

    def open_slots(self, row: int, gap: int) -> range:
        """Returns the slots of a gap that are still hidden, counted over all gap slots."""
        return range(self._frontiers[row][gap], self._spans[gap].stop)

    def committed(self, row: int, gap: int) -> list[int]:
        """Returns the tokens of a gap up to its frontier."""
        return self.slots_BG[row, self._spans[gap].start : self._frontiers[row][gap]].tolist()

    def half_given(self, row: int, gap: int) -> int:
        """Returns how many committed slots back the token is in which typed text ends, as long as nobody weighed it."""
        slot = self._half_given.get((row, gap))
        return 0 if slot is None else self._frontiers[row][gap] - slot

    def weigh(self, row: int, gap: int, confidence: float) -> None:
        """Takes the probability of that token, given the text that it begins with."""
        self.confidence_BG[row, self._half_given.pop((row, gap))] = confidence

    def row(self, row: int) -> list[int]:
        """Returns the tokens of a whole canvas row, pins included; hidden slots hold noise."""
        ids = list(self.task.canvas.ids)
        for slot, token in zip(self.task.canvas.gap_slots, self.slots_BG[row].tolist(), strict=True):
            ids[slot] = token
        return ids

    def commit(self, row: int, gap: int, token: int, confidence: float) -> None:
        """Commits the next slot of a gap; the blank ends it."""
        self._commit(row, gap, self._frontiers[row][gap], token, confidence)

    def beginning(self, row: int, gap: int) -> Beginning:
        """Returns what is committed in a gap, with its probability."""
        tokens, start = self.committed(row, gap), self._spans[gap].start
        if self._blank in tokens:
            tokens = tokens[: tokens.index(self._blank) + 1]
        probabilities = self.confidence_BG[row, start : start + len(tokens)].tolist()
        return Beginning.of(tokens, probabilities)

    def take_back(self, row: int, gap: int) -> None:
        """Forgets what is committed in a gap."""
        span = self._spans[gap]
        self.known_BG[row, span.start : span.stop] = False
        self.confidence_BG[row, span.start : span.stop] = 1.0
        self._frontiers[row][gap], self._required[row][gap] = span.start, self.task.required[gap]
        self._half_given.pop((row, gap), None)

    def _commit_run(self, row: int, gap: int, slots: range, tokens: list[int], confidences: list[float]) -> None:
        """Commits the first of `slots`, and those behind it up to a doubtful one or the end of the text."""
        for slot in slots:
            if slot > slots.start and confidences[slot] < self._threshold:
                break
            self._commit(row, gap, slot, tokens[slot], confidences[slot])
            if tokens[slot] == self._blank:
                break

    def _commit(self, row: int, gap: int, slot: int, token: int, confidence: float) -> None:
        end = self._spans[gap].stop if token == self._blank else slot + 1
        self.slots_BG[row, slot:end] = token
        self.draft_BG[row, slot:end] = token
        self.known_BG[row, slot:end] = True
        self.confidence_BG[row, slot] = confidence
        self._frontiers[row][gap] = end
        self._required[row][gap] = self._rules.rest(self._required[row][gap], token)


def _ranked(z_V: torch.Tensor, rank: int) -> tuple[int, float]:
    """Returns the token of that rank and its probability, so that alternatives part at the first slot.

    Where the gap's rules leave fewer tokens, the last of them is meant.
    """
    p_K, token_K = z_V.softmax(-1).topk(min(rank + 1, len(z_V)))
    rank = min(rank, int((p_K > 0).sum()) - 1)
    return int(token_K[rank]), float(p_K[rank])
