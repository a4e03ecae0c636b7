"""The least that a pass can take: the bytes that it has to read, over the bandwidth of the memory.

A pass over few rows reads nearly the whole model and computes little, so nothing but its bytes counts.
"""

from __future__ import annotations

import torch

from midspan_engine.bench.kernel_cases import share_of_experts
from midspan_engine.models.diffusion_gemma import DiffusionGemma

DATASHEET_GB_PER_S = {"H200": 4800, "H100": 3350, "RTX PRO 6000": 1792, "RTX 5090": 1792, "RTX 4090": 1008, "L4": 300}
"""By a part of the device's name. Source: NVIDIA's datasheets, the SXM modules of H100 and H200."""


def datasheet_gb_per_s(device: torch.device) -> float | None:
    """Returns the published bandwidth of a GPU, None where it is not known here."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((float(speed) for part, speed in DATASHEET_GB_PER_S.items() if part in name), None)


def step_bytes(model: DiffusionGemma, n_slots: int, n_context: int, *, softens: bool = True) -> float:
    """Returns what a denoising step over one row reads: weights, KV cache, the embedding as output head.

    The embedding is read once more where the step gives soft embeddings. Of the experts those count that so many slots
    go to where each is as likely as any other, as with random weights.
    """
    config = model.config
    embedding = model.embed_tokens.weight.nbytes
    experts = others = 0
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if ".experts." in name:
            experts += tensor.nbytes
        elif not name.startswith(("embed_tokens", "encoder_layer_scalars")):
            others += tensor.nbytes
    window = config.sliding_window - 1
    seen = sum(
        2 * layer.n_kv_heads * layer.head_dim * (min(n_context, window) if layer.is_sliding else n_context)
        for layer in config.layers
    )
    n_bytes = others + experts * share_of_experts(config, n_slots) + embedding * (1 + softens)
    return n_bytes + seen * model.embed_tokens.weight.itemsize
