"""The entropy order: DiffusionGemma's own sampler, on the gap slots of a canvas.

Every step accepts the most certain slots up to the entropy bound and draws fresh noise for all others; acceptance is
memoryless, the answer is the last step's best guess. Without pins it equals `generate.denoise_canvas` draw for draw,
where its random numbers are drawn `InTurn`.
"""

from __future__ import annotations

import torch

from midspan_engine.accept import entropy_bound, is_settled, temperature
from midspan_engine.config import GenerationConfig
from midspan_engine.errors import NO_NUMBERS, EngineError
from midspan_engine.healing import Allowance, GapRules
from midspan_engine.order import Order, Task
from midspan_engine.sampler import Sampler
from midspan_engine.step_reports import StepReport, StepReports
from midspan_kernels.row_logits import RowLogits


class EntropyOrder(Order):
    """No slot is ever known: one that is accepted now may be noise after the next step.

    With a sampler whose host hears of a step one step late, one pass more than needed is made, and the answer is
    still that of the step that settled. A step itself never waits for what a device computes.
    """

    def __init__(
        self,
        task: Task,
        noise_BG: torch.Tensor,
        rules: GapRules | None,
        generation: GenerationConfig,
        sampler: Sampler,
    ) -> None:
        super().__init__(task, noise_BG)
        self._rules, self._generation, self._sampler = rules, generation, sampler
        self._allowances: list[Allowance] = []
        self._drafts: list[torch.Tensor] = []
        self._reports = StepReports()
        self._is_settled = False

    @property
    def is_done(self) -> bool:
        """Tells whether the stop rule has fired, which counts gap slots only, as far as the host has heard.

        Raises EngineError when the weights gave no numbers.
        """
        is_last = len(self._drafts) >= self._generation.max_denoising_steps
        self._hear(0 if is_last else self._sampler.n_behind)
        return self._is_settled

    def conclude(self) -> None:
        """Hears of every step that was made; none follows. Raises EngineError when the weights gave no numbers."""
        self._hear(0)

    def go_on(self, task: Task) -> None:
        """Takes a task that may require more text; whether it is done is judged anew."""
        super().go_on(task)
        self._allowances.clear()
        self._reports.forget()

    def constrain(self, logits: RowLogits) -> RowLogits:
        """Returns the logits at this step's temperature with the tokens forbidden that the gaps' rules exclude."""
        n_left = self._generation.max_denoising_steps - len(self._drafts)
        logits = self._sampler.readable(logits._replace(temperature=float(temperature(self._generation, n_left))))
        if self._rules is None:
            return logits
        sizes = [len(gap) for gap in self.task.canvas.gaps]
        if not self._allowances:
            for required, size in zip(self.task.required, sizes, strict=True):
                asked = required, self.task.single_line, size, logits.z.shape[-1], logits.z.device
                self._allowances.append(self._rules.allowance(*asked))
        for z_GV in logits.z:
            for z, allowance in zip(z_GV.split(sizes), self._allowances, strict=True):
                allowance.constrain(z)
        return logits

    def advance(self, logits: RowLogits) -> None:
        """Accepts the most certain slots, renoises the others, and applies the stop rule."""
        n_rows, n_slots, _ = logits.z.shape
        step = len(self._drafts) + 1
        statistics, sampled_BG = self._sampler.draw(logits, step)
        self.draft_BG, self.entropy_BG, self.confidence_BG = statistics
        self._drafts.append(statistics.argmax)
        self.accepted_BG = entropy_bound(statistics.entropy, self._generation.entropy_bound)
        noise_BG = self._sampler.noise((n_rows, n_slots), step)
        self.slots_BG = torch.where(self.accepted_BG, sampled_BG, noise_BG)
        self._reports.send(
            StepReport(
                draft_BG=self.draft_BG,
                accepted_BG=self.accepted_BG,
                confidence_BG=self.confidence_BG,
                entropy_BG=self.entropy_BG,
                is_settled=is_settled(self._drafts, statistics.entropy, self._generation),
                is_broken=statistics.entropy.isnan().any(),
            )
        )

    def _hear(self, n_behind: int) -> None:
        """Reads the reports but for the last ones; the first step that settled is the answer."""
        for report in self._reports.arrived(n_behind):
            if self._is_settled:
                continue
            if report.is_broken:
                raise EngineError(NO_NUMBERS)
            self._is_settled = bool(report.is_settled)
            if self._is_settled:
                self.draft_BG, self.accepted_BG = report.draft_BG, report.accepted_BG
                self.confidence_BG, self.entropy_BG = report.confidence_BG, report.entropy_BG
