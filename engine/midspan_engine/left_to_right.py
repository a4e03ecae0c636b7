"""The left-to-right order: every step commits a run of slots from the left end of what is still hidden.

Committed slots stay. The first blank token of a gap ends it: all slots behind it become blank. So the length is found
on the way, and surplus slots can never be accepted before the text (on small models the far blanks are the most
certain, and a confidence order collapses to empty answers).
"""

from __future__ import annotations

import torch
from midspan_kernels.row_statistics import row_statistics

from midspan_engine.canvas import Canvas
from midspan_engine.config import InfillConfig
from midspan_engine.healing import GapRules


class LeftToRight:
    """The gap slots of B rows while they are committed; G counts the gap slots of all gaps."""

    def __init__(
        self, canvas: Canvas, noise_BG: torch.Tensor, required: tuple[bytes, ...], single_line: bool, rules: GapRules, infill: InfillConfig
    ) -> None:
        n_rows = noise_BG.shape[0]
        starts = [0]
        for gap in canvas.gaps:
            starts.append(starts[-1] + len(gap))
        self._spans = [range(a, b) for a, b in zip(starts, starts[1:], strict=False)]
        self._frontiers = [[span.start for span in self._spans] for _ in range(n_rows)]
        self._required = [list(required) for _ in range(n_rows)]
        self._single_line, self._rules = single_line, rules
        self._blank, self._threshold = infill.blank_token_id, infill.commit_confidence
        self._steps = 0
        self.slots_BG = noise_BG.clone()
        """What the canvas holds in the gap slots."""
        self.known_BG = torch.zeros_like(noise_BG, dtype=torch.bool)
        """Which of them are committed."""
        self.draft_BG = noise_BG.clone()
        """The best guess of each slot."""
        self.confidence_BG = torch.ones(noise_BG.shape)
        """Probability that a slot's token had when it was committed; 1 for the surplus behind the first blank."""
        self.entropy_BG = torch.zeros(noise_BG.shape)

    @property
    def is_done(self) -> bool:
        """Tells whether every slot of every row is committed."""
        return bool(self.known_BG.all())

    def constrain(self, z_BGV: torch.Tensor) -> torch.Tensor:
        """Returns the logits with the tokens forbidden that the gaps' rules exclude."""
        rows = []
        for row, z_GV in enumerate(z_BGV):
            parts = [
                self._rules.constrain(
                    z_GV[span.start : span.stop], self._frontiers[row][gap] - span.start, self._required[row][gap], self._single_line
                )
                for gap, span in enumerate(self._spans)
            ]
            rows.append(torch.cat(parts))
        return torch.stack(rows)

    def advance(self, z_BGV: torch.Tensor) -> None:
        """Commits the next run of each gap by the constrained logits of this step."""
        statistics = row_statistics(z_BGV)
        self.entropy_BG = torch.where(self.known_BG, 0.0, statistics.entropy)
        self.draft_BG = torch.where(self.known_BG, self.slots_BG, statistics.argmax)
        for row in range(len(z_BGV)):
            for gap, span in enumerate(self._spans):
                start = self._frontiers[row][gap]
                if start == span.stop:
                    continue
                if self._steps == 0 and row > 0:
                    # Alternatives part at the first slot: row r begins with the token of rank r.
                    p, ranked = z_BGV[row, start].softmax(-1).topk(row + 1)
                    self._commit(row, gap, start, int(ranked[row]), float(p[row]))
                    continue
                for slot in range(start, span.stop):
                    token, confidence = int(statistics.argmax[row, slot]), float(statistics.confidence[row, slot])
                    if slot > start and confidence < self._threshold:
                        break
                    self._commit(row, gap, slot, token, confidence)
                    if token == self._blank:
                        break
        self._steps += 1

    def _commit(self, row: int, gap: int, slot: int, token: int, confidence: float) -> None:
        end = self._spans[gap].stop if token == self._blank else slot + 1
        self.slots_BG[row, slot:end] = token
        self.draft_BG[row, slot:end] = token
        self.known_BG[row, slot:end] = True
        self.confidence_BG[row, slot] = confidence
        self._frontiers[row][gap] = end
        self._required[row][gap] = self._rules.rest(self._required[row][gap], token)
