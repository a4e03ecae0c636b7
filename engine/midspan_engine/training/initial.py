"""The weights that a run from scratch starts with."""

from __future__ import annotations

import torch

from midspan_engine.models.diffusion_gemma import DiffusionGemma

ATTENTION_SHARPNESS = 1.5
"""Gain of queries and keys over the usual scale, so that attention starts less even; chosen, not tuned."""


def initialise(model: DiffusionGemma) -> None:
    """Draws starting weights: unit-variance activations, quiet residual branches, attention sharper than 1/sqrt(D)."""
    branch = (2 * model.config.n_layers) ** -0.5
    for name, parameter in model.named_parameters():
        if name.startswith("embed_tokens"):
            torch.nn.init.normal_(parameter, std=model.config.hidden_size**-0.5)
        elif name == "self_conditioning.down_proj.weight":
            torch.nn.init.zeros_(parameter)
        elif parameter.ndim >= 2:
            torch.nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)
        elif name.endswith(("q_norm.weight", "k_norm.weight")):
            # scores have scale 1.0, so each side carries the square root of 1/sqrt(D)
            torch.nn.init.constant_(parameter, parameter.shape[0] ** -0.25 * ATTENTION_SHARPNESS)
        elif name.endswith(("post_attention_layernorm.weight", "post_feedforward_layernorm.weight")):
            torch.nn.init.constant_(parameter, branch)
