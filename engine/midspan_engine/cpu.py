"""How the model uses a CPU: how many threads, and in which precision."""

from __future__ import annotations

import os
from pathlib import Path

import torch

MAX_THREADS = 4
"""A pass over 64 slots of the small checkpoint is too little work for more."""


def cpu_threads() -> int:
    """Returns half of the cores that this process may use, at least 1 and at most MAX_THREADS.

    Never all of them: OpenMP threads wait for each other at every operation, so on a machine whose cores are all busy
    with other work the slowest decides. Measured on two cores beside a compute job: a denoising step took 590 ms with
    two threads and 37 ms with one.
    """
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(MAX_THREADS, n_cores // 2))


def cpu_dtype() -> torch.dtype:
    """Returns bf16 where the processor multiplies it natively, else fp32.

    A denoising step of the small checkpoint took 14.8 ms in bf16 and 18.5 in fp32 on such a core (one thread, 400
    tokens of context); without the instructions bf16 is emulated and slower. Linux says which it has.
    """
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return torch.float32
    return torch.bfloat16 if "avx512_bf16" in flags or "amx_bf16" in flags else torch.float32
