"""Which implementation of an operation runs: the torch reference or a Triton kernel."""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec

import torch

VARIABLE = "MIDSPAN_KERNELS"
"""The environment variable that decides for one of them; without it Triton serves GPUs where it is installed."""


def prefers_triton(x: torch.Tensor) -> bool:
    """Tells whether an operation on `x` is Triton's to run: never where gradients are kept, its kernels have none.

    Raises ValueError for an unknown wish.
    """
    wish = os.environ.get(VARIABLE) or "auto"
    if wish not in ("auto", "reference", "triton"):
        raise ValueError(f"{VARIABLE}={wish} is unknown: use reference or triton")
    is_wanted = wish == "triton" or (wish == "auto" and x.is_cuda and _is_installed())
    return is_wanted and not torch.is_grad_enabled()


@cache
def _is_installed() -> bool:
    return find_spec("triton") is not None
