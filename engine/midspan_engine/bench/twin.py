"""transformers on the very weights of a loaded model: the same tensors, so it takes no memory of its own."""

from __future__ import annotations

import importlib.util
from typing import Any

import torch
from torch import nn

from midspan_engine.config import ModelConfig
from midspan_engine.errors import InputError
from midspan_engine.models.diffusion_gemma import DiffusionGemma
from midspan_engine.training.recipe import VISION

NOT_INSTALLED = "transformers is not installed: pip install transformers==5.24.0"
_ENCODER, _DECODER = "model.encoder.language_model.", "model.decoder."


def is_installed() -> bool:
    """Tells whether transformers can be compared with; it is a development dependency."""
    return importlib.util.find_spec("transformers") is not None


def twin_of(model: DiffusionGemma) -> Any:
    """Returns a `DiffusionGemmaForBlockDiffusion` whose parameters are those of a model with plain weights.

    Attention and experts are computed as transformers does by default. Raises InputError without transformers.
    """
    if not is_installed():
        raise InputError(NOT_INSTALLED)
    from transformers import DiffusionGemmaConfig, DiffusionGemmaForBlockDiffusion
    from transformers.utils import logging

    logging.set_verbosity_error()  # it warns of caches and of weights that are new, which these are on purpose
    config = DiffusionGemmaConfig(**description(model.config))
    with torch.device("meta"):
        twin = DiffusionGemmaForBlockDiffusion(config)
    twin.model.encoder.vision_tower = twin.model.encoder.embed_vision = None
    weight = model.embed_tokens.weight
    # the type of a model is that of its configuration where generation makes masks
    twin.config.dtype = twin.config.text_config.dtype = weight.dtype
    for text in (twin.model.encoder.language_model, twin.model.decoder):
        text.rotary_emb = type(text.rotary_emb)(twin.config.text_config, device=weight.device)
        text.embed_tokens.embed_scale = torch.tensor(model.config.hidden_size**0.5, device=weight.device)
    own = dict(model.named_parameters())
    for name, held in [*twin.named_parameters(remove_duplicate=False), *twin.named_buffers()]:
        (owner_name, _, leaf), is_parameter = name.rpartition("."), isinstance(held, nn.Parameter)
        if held.is_meta:
            parameter = own[_own_name(name)]
            # layer scalars are buffers there
            setattr(twin.get_submodule(owner_name), leaf, parameter if is_parameter else parameter.detach())
    return twin.eval()


def _own_name(name: str) -> str:
    """Returns our name of a parameter or buffer of transformers'."""
    if name == "lm_head.weight":
        return "embed_tokens.weight"
    if name.startswith(_ENCODER) and name.endswith(".layer_scalar"):
        return f"encoder_layer_scalars.{name.split('.')[-2]}"
    return name.removeprefix(_ENCODER).removeprefix(_DECODER)


def description(config: ModelConfig) -> dict[str, Any]:
    """Returns the contents of config.json of a model."""
    sliding = next(layer for layer in config.layers if layer.is_sliding)
    full = next(layer for layer in config.layers if not layer.is_sliding)
    text = {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.n_layers,
        "layer_types": ["sliding_attention" if layer.is_sliding else "full_attention" for layer in config.layers],
        "num_attention_heads": config.n_heads,
        "num_key_value_heads": sliding.n_kv_heads,
        "num_global_key_value_heads": full.n_kv_heads,
        "head_dim": sliding.head_dim,
        "global_head_dim": full.head_dim,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": sliding.rope_theta},
            "full_attention": {
                "rope_type": "proportional",
                "partial_rotary_factor": full.rotated,
                "rope_theta": full.rope_theta,
            },
        },
        "sliding_window": config.sliding_window,
        "num_experts": config.n_experts,
        "top_k_experts": config.top_k_experts,
        "moe_intermediate_size": config.moe_intermediate_size,
        "max_position_embeddings": config.max_positions,
        "rms_norm_eps": config.rms_norm_eps,
        "final_logit_softcapping": config.softcap,
        "use_bidirectional_attention": "vision",
    }
    images = dict.fromkeys(("image_token_id", "boi_token_id", "eoi_token_id"), config.vocab_size - 1)
    return {"text_config": text, "vision_config": VISION, "canvas_length": config.canvas_length, **images}
