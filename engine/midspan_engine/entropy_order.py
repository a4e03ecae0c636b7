"""The entropy order: DiffusionGemma's own sampler, on the gap slots of a canvas.

Every step accepts the most certain slots up to the entropy bound and draws fresh noise for all others; acceptance is
memoryless, the answer is the last step's best guess. Without pins it equals `generate.denoise_canvas` draw for draw.
"""

from __future__ import annotations

import torch

from midspan_engine.accept import entropy_bound, is_settled, temperature
from midspan_engine.config import GenerationConfig, InfillConfig
from midspan_engine.healing import GapRules
from midspan_engine.noise import draw_noise
from midspan_engine.order import Order, Task
from midspan_kernels.row_statistics import row_statistics


class EntropyOrder(Order):
    """No slot is ever known: one that is accepted now may be noise after the next step."""

    def __init__(
        self,
        task: Task,
        noise_BG: torch.Tensor,
        rules: GapRules | None,
        infill: InfillConfig,
        generation: GenerationConfig,
        generator: torch.Generator,
    ) -> None:
        super().__init__(task, noise_BG)
        self._rules, self._infill, self._generation, self._generator = rules, infill, generation, generator
        self._drafts: list[torch.Tensor] = []
        self._is_settled = False

    @property
    def is_done(self) -> bool:
        """Tells whether the stop rule has fired, which counts gap slots only."""
        return self._is_settled

    def constrain(self, z_BGV: torch.Tensor) -> torch.Tensor:
        """Returns temperature-divided logits with the tokens forbidden that the gaps' rules exclude."""
        z_BGV = z_BGV / temperature(self._generation, self._generation.max_denoising_steps - len(self._drafts))
        if self._rules is None:
            return z_BGV
        sizes = [len(gap) for gap in self.task.canvas.gaps]
        for z_GV in z_BGV:
            for z, required in zip(z_GV.split(sizes), self.task.required, strict=True):
                self._rules.constrain(z, 0, required, self.task.single_line)
        return z_BGV

    def advance(self, z_BGV: torch.Tensor) -> None:
        """Accepts the most certain slots, renoises the others, and applies the stop rule."""
        statistics = row_statistics(z_BGV)
        self.draft_BG, self.entropy_BG = statistics.argmax, statistics.entropy
        self.confidence_BG = statistics.confidence
        self._drafts.append(statistics.argmax)
        shape = (z_BGV.shape[0], z_BGV.shape[1])
        sampled = torch.multinomial(z_BGV.flatten(0, 1).softmax(-1), 1, generator=self._generator).view(shape)
        self.accepted_BG = entropy_bound(statistics.entropy, self._generation.entropy_bound)
        noise = draw_noise(self._infill, shape, z_BGV.shape[-1], self._generator, z_BGV.device)
        self.slots_BG = torch.where(self.accepted_BG, sampled, noise)
        self._is_settled = is_settled(self._drafts, statistics.entropy, self._generation)
