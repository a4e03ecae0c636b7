"""What an unaccepted slot holds: the seam between the two kinds of noise."""

from __future__ import annotations

import torch

from midspan_engine.config import InfillConfig


def draw_noise(
    infill: InfillConfig, shape: tuple[int, ...], vocab_size: int, generator: torch.Generator, device: torch.device
) -> torch.Tensor:
    """Returns token ids for slots of the given shape that are to be denoised.

    `uniform` draws them from the whole vocabulary (DiffusionGemma); `mask` holds the mask token in all of them
    (absorbing-state diffusion), so that a small model need not tell noise from text.
    """
    if infill.noise == "mask":
        return mask_noise(infill, shape, device)
    return torch.randint(vocab_size, shape, generator=generator, device=device)


def mask_noise(infill: InfillConfig, shape: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """Returns the mask token for slots of the given shape."""
    assert infill.mask_token_id is not None, "the config reader refuses mask noise without a mask token"
    return torch.full(shape, infill.mask_token_id, device=device)
