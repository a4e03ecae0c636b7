"""The entropy order: DiffusionGemma's own sampler, on the gap slots of a canvas.

Every step accepts the most certain slots up to the entropy bound and draws fresh noise for all others; acceptance is
memoryless, the answer is the last step's best guess. Without pins it equals `generate.denoise_canvas` draw for draw.
"""

from __future__ import annotations

import torch

from midspan_engine.accept import entropy_bound
from midspan_engine.canvas import Canvas
from midspan_engine.config import GenerationConfig, InfillConfig
from midspan_engine.generate import is_settled, temperature
from midspan_engine.healing import GapRules
from midspan_engine.noise import draw_noise
from midspan_kernels.row_statistics import row_statistics


class EntropyOrder:
    """The gap slots of B rows while they settle; G counts the gap slots of all gaps."""

    def __init__(
        self,
        canvas: Canvas,
        noise_BG: torch.Tensor,
        required: tuple[bytes, ...],
        single_line: bool,
        rules: GapRules | None,
        infill: InfillConfig,
        generation: GenerationConfig,
        generator: torch.Generator,
    ) -> None:
        self._canvas, self._required, self._single_line, self._rules = canvas, required, single_line, rules
        self._infill, self._generation, self._generator = infill, generation, generator
        self._drafts: list[torch.Tensor] = []
        self.slots_BG = noise_BG.clone()
        """What the canvas holds in the gap slots."""
        self.known_BG = torch.zeros_like(noise_BG, dtype=torch.bool)
        """Slots that condition on their own token: none, a slot accepted now may be noise after the next step."""
        self.accepted_BG = self.known_BG
        """Which slots belong to the answer if no further step is taken."""
        self.draft_BG = noise_BG.clone()
        """The best guess of each slot."""
        self.confidence_BG = torch.zeros_like(noise_BG, dtype=torch.float32)
        self.entropy_BG = torch.zeros_like(self.confidence_BG)
        self._is_settled = False

    @property
    def is_done(self) -> bool:
        """Tells whether the stop rule has fired or the steps are used up; both count gap slots only."""
        return self._is_settled or len(self._drafts) == self._generation.max_denoising_steps

    def constrain(self, z_BGV: torch.Tensor) -> torch.Tensor:
        """Returns temperature-divided logits with the tokens forbidden that the gaps' rules exclude."""
        z_BGV = z_BGV / temperature(self._generation, self._generation.max_denoising_steps - len(self._drafts))
        if self._rules is None:
            return z_BGV
        sizes = [len(gap) for gap in self._canvas.gaps]
        for z_GV in z_BGV:
            for z, required in zip(z_GV.split(sizes), self._required, strict=True):
                self._rules.constrain(z, 0, required, self._single_line)
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
