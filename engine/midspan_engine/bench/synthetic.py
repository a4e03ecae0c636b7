"""A model of random weights, made where it will run: nothing is downloaded, nothing is held twice.

It knows nothing, and its passes cost what those of a trained one of its shape do; its routing is nearly uniform, so
they read more experts than a trained model's would.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

import torch
from torch import nn

from midspan_engine.config import ModelConfig
from midspan_engine.graphs import ENCODER_TOKENS
from midspan_engine.kv import KVCache
from midspan_engine.kv_pool import LEAST_ROWS, KVPool
from midspan_engine.models.captured_passes import CapturedPasses
from midspan_engine.models.diffusion_gemma import DiffusionGemma
from midspan_engine.models.layers import Experts
from midspan_engine.models.packed_matrix import PackedMatrix
from midspan_kernels.packed import GROUP, Packed

Held = Literal["plain", "4bit"]
"""How the experts are held: in the type of all weights, or as `quantise` packs them."""

_GAIN = 0.5
"""Of a matrix, over the square root of its inputs. Chosen: with much more a random network is chaotic."""
_CODE_SPREAD = 4.6
"""Standard deviation of codes that are uniform from -8 to 7."""


def synthetic_model(
    config: ModelConfig, dtype: torch.dtype, device: torch.device, held: Held = "plain", seed: int = 0
) -> DiffusionGemma:
    """Returns a model in evaluation mode whose weights are drawn from `seed`, tensor by tensor on the device.

    On the meta device they take no memory.
    """
    with torch.device("meta"):
        model = DiffusionGemma(config)
    generator = None if device.type == "meta" else torch.Generator(device).manual_seed(seed)
    for name, parameter in list(model.named_parameters()):
        owner_name, _, leaf = name.rpartition(".")
        owner = model.get_submodule(owner_name)
        if held == "4bit" and isinstance(owner, Experts):
            delattr(owner, leaf)  # a module cannot be assigned to a parameter
            setattr(owner, leaf, PackedMatrix(_packed(parameter.shape, device, generator)))
        else:
            setattr(owner, leaf, nn.Parameter(_drawn(name, parameter.shape, dtype, device, generator), False))
    return model.eval()


@torch.no_grad()
def capture_passes(model: DiffusionGemma, n_tokens: int, decoder: Iterable[tuple[int, int]]) -> None:
    """Lets a model's passes be replayed as when it is served: decoder passes of rows and slots, for two documents."""
    weight = model.embed_tokens.weight
    pool = KVPool(model.config, LEAST_ROWS, n_tokens, weight.dtype, weight.device)
    model.capture(CapturedPasses(model.config, pool, weight.dtype, decoder=decoder, encoder=ENCODER_TOKENS))


def captured_cache(model: DiffusionGemma) -> KVCache:
    """Returns an empty cache that captured passes read and write, so that no measurement goes past them."""
    cache = model.new_cache()
    assert cache.row is not None, "passes are captured, and a document has room in the pool"
    return cache


def _drawn(
    name: str, shape: torch.Size, dtype: torch.dtype, device: torch.device, generator: torch.Generator | None
) -> torch.Tensor:
    weights = torch.empty(shape, dtype=dtype, device=device)
    if weights.is_meta:  # a normal draw there imports torch's compiler, seconds for nothing
        return weights
    if len(shape) == 1:  # norms and scales: near one, so that none can be left out unnoticed
        return weights.normal_(1.0, 0.1, generator=generator)
    spread = 1.0 if name.startswith("embed_tokens") else _GAIN
    return weights.normal_(0.0, spread / math.sqrt(shape[-1]), generator=generator)


def _packed(shape: torch.Size, device: torch.device, generator: torch.Generator | None) -> Packed:
    *outer, n_inputs = shape
    codes = torch.randint(256, (*outer, n_inputs // 2), dtype=torch.uint8, device=device, generator=generator)
    scale = _GAIN / math.sqrt(n_inputs) / _CODE_SPREAD
    scales = torch.full((*outer, n_inputs // GROUP), scale, dtype=torch.bfloat16, device=device)
    return Packed("int4", codes, scales)
