"""From a checkpoint folder to a model: strict and streaming, whatever the format; and saving.

Every header is checked before the first tensor is read, and every parameter must come from the files: nothing is left
at its random initial value. Beside the model at most one tensor is in memory, and of the large ones only a piece.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from midspan_engine.budget import Weights, Wish, budget, choose_weights
from midspan_engine.config import InfillConfig, ModelConfig
from midspan_engine.formats.folder import open_source
from midspan_engine.formats.source import Source
from midspan_engine.models.checkpoint_names import checkpoint_name
from midspan_engine.models.diffusion_gemma import DiffusionGemma
from midspan_engine.models.layers import Experts
from midspan_engine.models.packed_matrix import PackedMatrix
from midspan_engine.quantised_cache import QuantisedCache, cache_folder
from midspan_kernels.packed import GROUP, IntegerKind, Packed, dequantise, joined, quantise

_KINDS: dict[Weights, IntegerKind | None] = {"stored": None, "8bit": "int8", "4bit": "int4"}
_BITS = {"int8": 8 + 16 / GROUP, "int4": 4 + 16 / GROUP}
"""Of a packed weight and its share of a scale."""


_LARGE = 2**20
"""Weights of a tensor behind which memory is given back. Chosen: for small checkpoints it is not worth the time."""


def load_weights(
    folder: Path,
    config: ModelConfig,
    dtype: torch.dtype,
    on_progress: Callable[[float], None] = lambda share: None,
    *,
    wish: Wish = "stored",
    infill: InfillConfig | None = None,
    device: torch.device | None = None,
    kept_in: Path | None = None,
    on_budget: Callable[[str], None] = lambda told: None,
) -> DiffusionGemma:
    """Returns the model of a checkpoint folder in evaluation mode on a device, by default the CPU.

    Plain weights become `dtype`, packed ones stay packed; with `wish` plain experts are packed while they are read, and
    kept in a folder, by default one of the user's caches. The memory that all of it takes to serve prompts as long as
    `infill` has them is told first; then the share of the weights read is told, 0..1. Raises CheckpointError for a
    folder that cannot be used, EngineError when the free memory does not suffice.
    """
    device = device or torch.device("cpu")
    with torch.device("meta"):
        model = DiffusionGemma(config)
    source = open_source(folder, config, {checkpoint_name(name): p.shape for name, p in model.named_parameters()})
    sizes = {weights: _n_bytes(model, source, dtype, _KINDS[weights]) for weights in _KINDS}
    budgets = {
        weights: budget(config, infill or InfillConfig(), dtype, device, size) for weights, size in sizes.items()
    }
    weights, chosen = choose_weights(folder, wish, budgets)
    kind = _KINDS[weights]
    on_budget(f"experts as {weights}; {chosen}" if config.n_experts > 1 or kind is not None else str(chosen))
    cache = None if kind is None else QuantisedCache(kept_in or cache_folder(folder), kind)
    n_weights, n_read = model.n_weights, 0
    for name, parameter in list(model.named_parameters()):
        if cache is not None and _is_packed_here(model, source, name, parameter):
            _place(model, name, _packed_once(source, checkpoint_name(name), cache, device).map(lambda t: t.to(device)))
        else:
            _place(model, name, _gathered(model, source, name, parameter, dtype, device))
        if parameter.numel() > _LARGE:
            _give_back()
        n_read += parameter.numel()
        on_progress(n_read / n_weights)
    return model.eval()


def _n_bytes(model: DiffusionGemma, source: Source, dtype: torch.dtype, kind: IntegerKind | None) -> int:
    """Returns what the model's weights take when the experts are held so."""
    total = 0.0
    for name, parameter in model.named_parameters():
        stored = source.packed_bytes(checkpoint_name(name)) if _can_be_packed(model, name) else None
        if stored is not None:
            total += stored
        elif kind is not None and _is_packed_here(model, source, name, parameter):
            total += parameter.numel() * _BITS[kind] / 8
        else:
            total += parameter.numel() * dtype.itemsize
    return int(total)


def _can_be_packed(model: DiffusionGemma, name: str) -> bool:
    """Tells whether the model can compute with a parameter in packed form: not with norms, scales and embeddings."""
    return isinstance(model.get_submodule(name.rpartition(".")[0]), nn.Linear | Experts)


def _is_packed_here(model: DiffusionGemma, source: Source, name: str, parameter: torch.Tensor) -> bool:
    """Tells whether a parameter is of those that are packed while they are loaded: experts that are stored plain."""
    is_experts = isinstance(model.get_submodule(name.rpartition(".")[0]), Experts)
    return is_experts and parameter.shape[-1] % GROUP == 0 and source.packed_bytes(checkpoint_name(name)) is None


def _packed_once(source: Source, name: str, cache: QuantisedCache, device: torch.device) -> Packed:
    """Returns a tensor's packed form from the cache, or makes it, on an accelerator if there is one, and keeps it."""
    fingerprint = source.fingerprint(name)
    if (kept := cache.load(name, fingerprint)) is not None:
        return kept
    worker = device if device.type == "cuda" else torch.device("cpu")
    plain = (slab.to(worker) for slab in source.slabs(name) if isinstance(slab, torch.Tensor))
    packed = joined([quantise(slab, cache.kind) for slab in plain], 0)
    cache.save(name, fingerprint, packed)
    return packed


def _gathered(
    model: DiffusionGemma,
    source: Source,
    name: str,
    parameter: torch.Tensor,
    dtype: torch.dtype,
    device: torch.device,
) -> torch.Tensor | Packed:
    """Returns a tensor as it is stored, put together from its slabs: packed if it is and the model can use it so."""
    slabs = source.slabs(checkpoint_name(name))
    if source.packed_bytes(checkpoint_name(name)) is not None and _can_be_packed(model, name):
        return joined([slab for slab in slabs if isinstance(slab, Packed)], 0).map(lambda tensor: tensor.to(device))
    whole, n_rows = torch.empty(parameter.shape, dtype=dtype, device=device), 0
    for slab in slabs:
        rows = dequantise(slab, dtype) if isinstance(slab, Packed) else slab
        whole[n_rows : n_rows + len(rows)].copy_(rows)
        n_rows += len(rows)
    return whole


def _give_back() -> None:
    """Returns freed memory to the system. The C library would keep it between tensors that live on, ever more of it."""
    with contextlib.suppress(OSError, AttributeError):  # glibc alone has it, and needs it
        ctypes.CDLL(None).malloc_trim(0)


def _place(model: DiffusionGemma, name: str, weights: torch.Tensor | Packed) -> None:
    """Puts weights where the model has a parameter of that name, as a module of their own when they are packed."""
    owner, _, leaf = name.rpartition(".")
    if isinstance(weights, Packed):
        if isinstance(model.get_submodule(owner), nn.Linear):  # it is replaced as a whole
            owner, _, leaf = owner.rpartition(".")
        delattr(model.get_submodule(owner), leaf)  # a module cannot be assigned to a parameter
        setattr(model.get_submodule(owner), leaf, PackedMatrix(weights))
    else:
        setattr(model.get_submodule(owner), leaf, nn.Parameter(weights))
