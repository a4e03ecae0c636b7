"""The device that a model is served on."""

from __future__ import annotations

import torch

from midspan_engine.config import ModelConfig


def serving_device(config: ModelConfig) -> torch.device:
    """Returns where a model is served: a mixture of experts on a GPU that torch finds, a small dense one on the CPU.

    CUDA_VISIBLE_DEVICES, empty, hides all GPUs.
    """
    is_large = config.n_experts > 1
    return torch.device("cuda" if is_large and torch.cuda.is_available() else "cpu")
