"""Prints the most memory, MB, that a process takes to load a checkpoint, read a prompt and denoise a canvas.

Run as `python -m midspan_engine.bench.peak_memory own|transformers CHECKPOINT`, because a process has one peak.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from midspan_engine.bench.beside import N_STEPS, PROMPT_TOKENS, canvas_of, own_canvas, random_ids
from midspan_engine.config import load_model_config
from midspan_engine.cpu import cpu_dtype, cpu_threads
from midspan_engine.device import serving_device
from midspan_engine.weights import load_weights


def main(who: str, checkpoint: Path) -> None:
    """Does the work, ours or that of transformers, and prints the figure."""
    torch.set_num_threads(cpu_threads())
    config = load_model_config(checkpoint)
    device = serving_device(config)
    dtype = torch.bfloat16 if device.type == "cuda" else cpu_dtype()
    n_prompt = min(PROMPT_TOKENS, config.max_positions - 2 * config.canvas_length)
    prompt_1L = random_ids(config, device, n_prompt)
    if who == "own":
        model = load_weights(checkpoint, config, dtype, device=device)
        model.requires_grad_(False)
        model.fuse()
        own_canvas(model, prompt_1L)
    else:
        canvas_of(_theirs(checkpoint, dtype, device), prompt_1L, N_STEPS)()
    print((torch.cuda.max_memory_allocated() if device.type == "cuda" else _peak_bytes()) / 1e6)


def _peak_bytes() -> int:
    """Returns the most memory that this process has had resident. What `getrusage` tells includes its parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def _theirs(checkpoint: Path, dtype: torch.dtype, device: torch.device) -> Any:
    from transformers import DiffusionGemmaForBlockDiffusion
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    load = DiffusionGemmaForBlockDiffusion.from_pretrained
    return load(checkpoint, dtype=dtype, local_files_only=True).to(device).eval()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
