"""What a checkpoint takes in memory, told before it is loaded, and how its experts are held so that it fits."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, cast

import msgspec
import torch

from midspan_engine.commands import WEIGHTS, WEIGHTS_VARIABLE
from midspan_engine.config import InfillConfig, ModelConfig
from midspan_engine.errors import EngineError, InputError
from midspan_engine.kv_pool import LEAST_ROWS, ROOM_TOKENS, row_bytes

Weights = Literal["stored", "8bit", "4bit"]
"""How the experts are held: as the checkpoint has them, or packed into integers while it is loaded."""
Wish = Literal["auto"] | Weights
"""What a user asks for; auto takes 4 bits when the weights as stored do not fit."""

_LOGIT_COPIES = 4
"""Logits, their temperature-divided copy, log-probabilities and probabilities are alive at once in fp32."""
_N_PROBED = 3
"""Gaps of different lengths that are denoised at once where no blank tells the length."""
_ACCELERATOR_BYTES = 2**30
"""CUDA's context, cuBLAS' workspaces and the nodes of captured graphs. Chosen, not measured."""
_GRAPH_SLOTS = 1088
"""Slots of the widest captured pass, 17 rows of 64. All recordings share the memory of its intermediate results."""


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes that serving a checkpoint takes on a device, and what is free there."""

    device: str
    weights: int
    kv: int
    """KV cache of one prompt of full length and its canvas; on an accelerator the least pool of captured passes."""
    work: int
    """Logits of the gap, and an expert while it is unpacked."""
    overhead: int
    """What an accelerator needs beside tensors."""
    free: int | None
    """None where the system does not tell."""

    @property
    def total(self) -> int:
        """All that is needed."""
        return self.weights + self.kv + self.work + self.overhead

    @property
    def fits(self) -> bool:
        """Whether there is room, as far as anybody knows."""
        return self.free is None or self.total <= self.free

    def __str__(self) -> str:
        """Says it in one line."""
        parts = {"weights": self.weights, "KV cache": self.kv, "work": self.work, "overhead": self.overhead}
        told = ", ".join(f"{name} {_gb(n_bytes)}" for name, n_bytes in parts.items() if n_bytes)
        free = "" if self.free is None else f", {_gb(self.free)} free on {self.device}"
        return f"{told}: {_gb(self.total)}{free}"


def wished_weights() -> Wish:
    """Returns what MIDSPAN_WEIGHTS asks for, auto by default. Raises InputError for an unknown value."""
    wish = os.environ.get(WEIGHTS_VARIABLE) or "auto"
    if wish not in WEIGHTS:
        raise InputError(f"{WEIGHTS_VARIABLE}={wish} is unknown: use one of {', '.join(WEIGHTS)}")
    return cast("Wish", wish)


def choose_weights(folder: Path, wish: Wish, budgets: Mapping[Weights, Budget]) -> tuple[Weights, Budget]:
    """Returns how the weights are held. Raises EngineError, naming what would fit, when the wish does not."""
    wanted: tuple[Weights, ...] = ("stored", "4bit") if wish == "auto" else (wish,)
    for weights in wanted:
        if budgets[weights].fits:
            return weights, budgets[weights]
    smallest = budgets[wanted[-1]]
    fitting = [weights for weights, budget in budgets.items() if budget.fits]
    if fitting:
        way_out = f"set {WEIGHTS_VARIABLE}={fitting[0]}, which takes {_gb(budgets[fitting[0]].total)}"
    else:
        least = min(budgets.values(), key=lambda budget: budget.total)
        way_out = f"free {_gb(least.total - (least.free or 0))}, or use a smaller checkpoint"
        if least.total < smallest.total:
            way_out = f"set {WEIGHTS_VARIABLE}=4bit and {way_out}"
    raise EngineError(f"{folder} does not fit into memory ({smallest}): {way_out}")


def budget(
    config: ModelConfig, infill: InfillConfig, dtype: torch.dtype, device: torch.device, n_weight_bytes: int
) -> Budget:
    """Returns the budget of a model whose weights take so many bytes."""
    on_cuda = device.type == "cuda"
    n_tokens = infill.prompt_tokens + config.canvas_length
    pool = LEAST_ROWS * row_bytes(config, infill.prompt_tokens + ROOM_TOKENS, dtype)
    # most of what is alive at once: the results of each slot's experts in fp32, and what they come from
    graphs = _GRAPH_SLOTS * config.top_k_experts * (4 * config.hidden_size + 4 * config.moe_intermediate_size)
    n_slots = infill.gap_tokens * (_N_PROBED if infill.finds_length == "probe" else 1)
    expert = 3 * config.moe_intermediate_size * config.hidden_size
    return Budget(
        device=str(device),
        weights=n_weight_bytes,
        kv=pool if on_cuda else n_tokens * config.kv_numbers * dtype.itemsize,
        work=4 * (_LOGIT_COPIES * n_slots * config.vocab_size + 2 * expert),
        overhead=_ACCELERATOR_BYTES + graphs if on_cuda else 0,
        free=free_bytes(device),
    )


def free_bytes(device: torch.device) -> int | None:
    """Returns the memory that is free on a device, None where the system does not tell."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type != "cpu":
        return None
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    available = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")), None)
    rooms = [room for room in (available, _container_room()) if room is not None]
    return min(rooms, default=None)


def _container_room() -> int | None:
    """Returns what the control group of a container leaves, caches that can be dropped counted as free."""
    group = Path("/sys/fs/cgroup")
    try:
        limit = (group / "memory.max").read_text().strip()
        if limit == "max":
            return None
        dropped = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return int(limit) - int((group / "memory.current").read_text()) + int(dropped.get("inactive_file", 0))
    except (OSError, ValueError):
        return None


def _gb(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e8 else f"{n_bytes / 1e6:.0f} MB"
