"""Where the random numbers of a canvas come from, and with them who runs its sampler: torch in turn, or a kernel.

`InTurn` is the reference: it draws as transformers' generate() does, one number after the other. `Counted` serves
accelerators: one kernel reads a row of logits once for its statistics and its draw, and every number depends on the
seed, the step, the row and the slot alone, so that the same seed gives the same canvas whatever lies beside it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch

from midspan_engine.config import InfillConfig
from midspan_engine.errors import NO_NUMBERS, EngineError
from midspan_engine.noise import draw_noise, mask_noise
from midspan_kernels.choice import prefers_triton
from midspan_kernels.random_tokens import random_tokens
from midspan_kernels.row_logits import RowLogits, capped
from midspan_kernels.row_samples import row_samples
from midspan_kernels.row_statistics import RowStatistics, row_statistics

_ALL = (1 << 64) - 1


class Sampler(ABC):
    """Draws what the gap slots [B, G] of one canvas hold."""

    n_behind: int
    """How many steps late the host hears whether a step was the last one."""

    def __init__(self, seed: int, infill: InfillConfig, vocab_size: int, device: torch.device) -> None:
        self._seed, self._infill, self._vocab_size, self._device = seed, infill, vocab_size, device

    @abstractmethod
    def noise(self, shape: tuple[int, int], step: int) -> torch.Tensor:
        """Returns what slots hold that are still to be denoised after `step` steps."""

    @abstractmethod
    def readable(self, logits: RowLogits) -> RowLogits:
        """Returns logits of which none is forbidden yet as `draw` had best find them; may change them in place."""

    @abstractmethod
    def draw(self, logits: RowLogits, step: int) -> tuple[RowStatistics, torch.Tensor]:
        """Returns the statistics of logits [B, G, V] and a token drawn by them, each [B, G]; `step` counts from 1."""


class InTurn(Sampler):
    """Takes torch's numbers in the reference's order; of a step the draw comes first, then the noise."""

    n_behind = 0

    def __init__(self, seed: int, infill: InfillConfig, vocab_size: int, device: torch.device) -> None:
        super().__init__(seed, infill, vocab_size, device)
        self._generator = torch.Generator(device).manual_seed(seed)

    def noise(self, shape: tuple[int, int], step: int) -> torch.Tensor:
        """Returns the mask token, or the next numbers."""
        return draw_noise(self._infill, shape, self._vocab_size, self._generator, self._device)

    def readable(self, logits: RowLogits) -> RowLogits:
        """Applies cap and temperature: the logits are read more than once."""
        return RowLogits(capped(logits.z, logits.cap).div_(logits.temperature))

    def draw(self, logits: RowLogits, step: int) -> tuple[RowStatistics, torch.Tensor]:
        """Takes a number for every slot. Raises EngineError when the logits are no numbers."""
        z_BGV = logits.z
        statistics = row_statistics(z_BGV)
        if statistics.entropy.isnan().any():
            raise EngineError(NO_NUMBERS)
        sampled_R1 = torch.multinomial(z_BGV.flatten(0, 1).softmax(-1), 1, generator=self._generator)
        return statistics, sampled_R1.view(z_BGV.shape[:-1])


class Counted(Sampler):
    """Counts instead of taking turns; the host goes on before it knows what came of a step."""

    n_behind = 1

    def __init__(self, seed: int, infill: InfillConfig, vocab_size: int, device: torch.device) -> None:
        super().__init__(_mixed(seed), infill, vocab_size, device)

    def noise(self, shape: tuple[int, int], step: int) -> torch.Tensor:
        """Returns the mask token, or a token of its own for every slot."""
        if self._infill.noise == "mask":
            return mask_noise(self._infill, shape, self._device)
        return random_tokens(self._keys(shape, 2 * step), self._vocab_size).view(shape)

    def readable(self, logits: RowLogits) -> RowLogits:
        """Leaves cap and temperature to the kernels, which apply them to what they read anyway."""
        return logits

    def draw(self, logits: RowLogits, step: int) -> tuple[RowStatistics, torch.Tensor]:
        """Reads the logits once."""
        shape = logits.z.shape[0], logits.z.shape[1]
        drawn = row_samples(logits._replace(z=logits.z.flatten(0, 1)), self._keys(shape, 2 * step + 1))
        statistics = RowStatistics(*(of_row.view(shape) for of_row in (drawn.argmax, drawn.entropy, drawn.confidence)))
        return statistics, drawn.sample.view(shape)

    def _keys(self, shape: tuple[int, int], stage: int) -> torch.Tensor:
        """Returns a number for each slot of each row, [B * G], that no other stage of this seed has."""
        row_B1 = torch.arange(shape[0], device=self._device)[:, None]
        slot_G = torch.arange(shape[1], device=self._device)
        return ((row_B1 << 16 | slot_G) ^ (self._seed ^ stage << 32)).flatten()


def sampler_for(seed: int, infill: InfillConfig, vocab_size: int, device: torch.device) -> Sampler:
    """Returns what denoises a canvas on a device: counted where kernels run, else in turn."""
    kind = Counted if prefers_triton(torch.empty(0, device=device)) else InTurn
    return kind(seed, infill, vocab_size, device)


def _mixed(seed: int) -> int:
    """Returns 64 bits, as a signed number, of which seeds that differ a little share nothing.

    Source: the finaliser of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators").
    """
    x = seed + 0x9E3779B97F4A7C15 & _ALL
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ x >> shift) * factor & _ALL
    x ^= x >> 31
    return x - (x >> 63 << 64)
