"""Small random DiffusionGemma checkpoints that transformers wrote: the oracle of the parity tests.

transformers initialises norms, router scales and layer scalars to one, which hides bugs; here every parameter is drawn
anew, the encoder's and the decoder's layer scalars apart.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import DiffusionGemmaConfig, DiffusionGemmaForBlockDiffusion, DynamicCache
from transformers.models.diffusion_gemma.generation_diffusion_gemma import EntropyBoundSamplerConfig
from transformers.utils import logging

from midspan_engine.config import GenerationConfig, load_model_config
from midspan_engine.models.diffusion_gemma import DiffusionGemma
from midspan_engine.weights import load_weights

# Networks this small gain nothing from threads, and lose minutes at their barriers when the cores are busy.
torch.set_num_threads(1)
logging.set_verbosity_error()
logging.disable_progress_bar()

Spelling = Literal["per_layer", "global"]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What varies between the small checkpoints; the rest is the same for all."""

    layers: str = "sssf"
    """One letter a layer: sliding or full."""
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    global_head_dim: int = 32
    global_kv_heads: int = 1
    hidden: int = 64
    intermediate: int = 96
    experts: int = 8
    expert_width: int = 24
    top_k: int = 2
    window: int = 8
    canvas: int = 16
    vocab: int = 512
    spelling: Spelling = "per_layer"
    """How config.json tells the full layers' shape."""
    branch_gain: float = 1.0
    """Scales what attention and feed-forward add; a small one makes a network that soon settles on its own input."""


SHAPES = {
    "plain": Shape(),
    "one expert": Shape(experts=1, top_k=1, layers="ssf", heads=2, spelling="global"),
    "all experts": Shape(experts=4, top_k=4, layers="sf", kv_heads=4, window=5),
    "narrow window": Shape(window=2, canvas=8, global_kv_heads=2, spelling="global"),
    "wide window": Shape(window=24, canvas=12, top_k=3, layers="sssssf"),
    # Three full layers among five are chaotic: with gain 1 the last bits of fp32 reach 3e-4.
    "full layers in between": Shape(
        layers="fsfsf", heads=8, kv_heads=1, global_kv_heads=4, global_head_dim=24, branch_gain=0.5
    ),
    "equal heads": Shape(
        layers="sf", hidden=48, head_dim=8, global_head_dim=8, kv_heads=2, global_kv_heads=2, spelling="global"
    ),
}


@dataclass(frozen=True)
class Pair:
    """One checkpoint, loaded by transformers and by us."""

    reference: Any
    own: DiffusionGemma
    folder: Path
    shape: Shape


def write_checkpoint(folder: Path, shape: Shape, seed: int = 0) -> Any:
    """Writes a checkpoint folder with randomised weights and returns the transformers model, in fp32."""
    torch.manual_seed(seed)
    model = DiffusionGemmaForBlockDiffusion._from_config(_config(shape), attn_implementation="eager").eval()
    _randomise(model, seed, shape.branch_gain)
    model.save_pretrained(folder)
    if shape.spelling == "global":
        _respell(folder / "config.json", shape)
    return model


def build_pair(folder: Path, shape: Shape, seed: int = 0) -> Pair:
    """Writes a checkpoint and loads it with our own loader in fp32."""
    reference = write_checkpoint(folder, shape, seed)
    own = load_weights(folder, load_model_config(folder), torch.float32)
    return Pair(reference, own, folder, shape)


def bf16_pair(pair: Pair) -> Pair:
    """Loads a pair's checkpoint again, both sides in bf16, the reference with the attention kernel that we use too.

    Eager attention rounds scores to bf16, the fused kernel does not; on networks this small that is worth whole logits.
    """
    reference = DiffusionGemmaForBlockDiffusion.from_pretrained(
        pair.folder,
        dtype=torch.bfloat16,
        attn_implementation="sdpa",
        experts_implementation="eager",
        local_files_only=True,
    ).eval()
    own = load_weights(pair.folder, load_model_config(pair.folder), torch.bfloat16)
    return Pair(reference, own, pair.folder, pair.shape)


def reference_cache(reference: Any) -> DynamicCache:
    """Returns an empty cache; never a StaticCache, which is wrong once a prompt reaches the window."""
    return DynamicCache(config=reference.config.get_text_config())


def reference_head(reference: Any, hidden: torch.Tensor) -> torch.Tensor:
    """Returns the soft-capped logits of hidden states."""
    cap = reference.final_logit_softcapping
    return torch.tanh(reference.lm_head(hidden).float() / cap) * cap


def reference_generate(
    reference: Any, prompt: torch.Tensor, generation: GenerationConfig, max_new_tokens: int, seed: int
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Returns what a seeded generate() of transformers gives: all ids, and the draft of every denoising step."""
    drafts = _Drafts()
    torch.manual_seed(seed)
    out = reference.generate(
        prompt,
        streamer=drafts,
        max_new_tokens=max_new_tokens,
        max_denoising_steps=generation.max_denoising_steps,
        sampler_config=EntropyBoundSamplerConfig(entropy_bound=generation.entropy_bound),
        t_min=generation.t_min,
        t_max=generation.t_max,
        stability_threshold=generation.stability_threshold,
        confidence_threshold=generation.confidence_threshold,
        eos_token_id=list(generation.eos_token_ids),
        pad_token_id=generation.pad_token_id,
    )
    return out.sequences, drafts.steps


class _Drafts:
    def __init__(self) -> None:
        self.steps: list[torch.Tensor] = []

    def put(self, value: torch.Tensor) -> None:
        del value

    def put_draft(self, value: torch.Tensor) -> None:
        self.steps.append(value)

    def end(self) -> None:
        pass


def _config(shape: Shape) -> DiffusionGemmaConfig:
    kinds = {"s": "sliding_attention", "f": "full_attention"}
    text = {
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": len(shape.layers),
        "layer_types": [kinds[letter] for letter in shape.layers],
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "num_global_key_value_heads": shape.global_kv_heads,
        "head_dim": shape.head_dim,
        "global_head_dim": shape.global_head_dim,
        "sliding_window": shape.window,
        "num_experts": shape.experts,
        "top_k_experts": shape.top_k,
        "moe_intermediate_size": shape.expert_width,
        "max_position_embeddings": 1024,
        "use_bidirectional_attention": "vision",
    }
    vision = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "position_embedding_size": 64,
    }
    return DiffusionGemmaConfig(
        text_config=text,
        vision_config={"model_type": "gemma4_vision", **vision},
        canvas_length=shape.canvas,
        image_token_id=shape.vocab - 3,
        boi_token_id=shape.vocab - 2,
        eoi_token_id=shape.vocab - 1,
    )


def _randomise(model: Any, seed: int, branch_gain: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    tensors = dict(model.named_parameters()) | {n: b for n, b in model.named_buffers() if n.endswith("layer_scalar")}
    for name, tensor in tensors.items():
        drawn = torch.randn(tensor.shape, generator=generator)
        if "embed_tokens" in name:
            value = drawn
        elif tensor.dim() >= 2:
            # A larger gain makes the network chaotic, and the last bits of fp32 grow into differences.
            value = drawn * 0.5 / tensor.shape[-1] ** 0.5
        else:
            value = 1 + 0.3 * drawn
        if name.endswith("q_norm.weight"):
            # Softer attention, for the same reason.
            value = value * 0.5
        if "post_attention_layernorm" in name or name.endswith("post_feedforward_layernorm.weight"):
            value = value * branch_gain
        with torch.no_grad():
            tensor.copy_(value)
    model.tie_weights()


def _respell(path: Path, shape: Shape) -> None:
    """Rewrites config.json from per_layer_config, as transformers saves it, to the released checkpoint's keys."""
    config = json.loads(path.read_text())
    del config["text_config"]["per_layer_config"]
    config["text_config"]["global_head_dim"] = shape.global_head_dim
    config["text_config"]["num_global_key_value_heads"] = shape.global_kv_heads
    path.write_text(json.dumps(config))
