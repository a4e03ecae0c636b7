"""A random network of the engine's own kind with the embedded tokenizer: real code, in seconds, knowing nothing."""

from __future__ import annotations

import time
from functools import cache

import msgspec
import torch

from midspan_engine.config import GenerationConfig, InfillConfig, LayerConfig, ModelConfig
from midspan_engine.engine import Engine
from midspan_engine.models.diffusion_gemma import DiffusionGemma
from midspan_engine.protocol import Fill, Filled
from midspan_engine.tokens import Tokens
from served_checkpoint import CHECKPOINT

# Networks this small gain nothing from threads, and lose minutes at their barriers when the cores are busy.
torch.set_num_threads(1)

BLANKS = InfillConfig(
    noise="mask",
    order="left_to_right",
    mask_token_id=4,
    blank_token_id=5,
    languages=("python",),
    prompt_tokens=448,
    tail_tokens=4,
    head_tokens=8,
    gap_tokens=12,
)
"""How the embedded checkpoint wants to be asked, on a narrower canvas."""
PROBED = InfillConfig(tail_tokens=4, head_tokens=8, gap_tokens=12)
"""The defaults, as for a checkpoint without infill_config.json: uniform noise, entropy order, no blank token."""
REFERENCE = msgspec.structs.replace(PROBED, length="fixed")
"""The same where nobody looks for the length."""


@cache
def embedded_tokens() -> Tokens:
    return Tokens.load(CHECKPOINT / "tokenizer.json")


@cache
def tiny_model(vocab_size: int = 4096, canvas: int = 32, seed: int = 0, n_experts: int = 2) -> DiffusionGemma:
    """Returns a network of three layers; its weights are drawn from `seed`."""
    sliding = LayerConfig(is_sliding=True, head_dim=16, n_kv_heads=1, rope_theta=1e4, rotated=1.0)
    full = LayerConfig(is_sliding=False, head_dim=16, n_kv_heads=1, rope_theta=1e6, rotated=0.25)
    config = ModelConfig(
        vocab_size=vocab_size,
        hidden_size=32,
        intermediate_size=48,
        moe_intermediate_size=24,
        n_experts=n_experts,
        top_k_experts=1,
        n_heads=2,
        sliding_window=64,
        rms_norm_eps=1e-6,
        softcap=30.0,
        max_positions=1024,
        canvas_length=canvas,
        layers=(sliding, sliding, full),
    )
    model = DiffusionGemma(config).eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        drawn = torch.randn(parameter.shape, generator=generator)
        if "embed_tokens" in name:
            parameter.copy_(0.3 * drawn)
        elif parameter.dim() > 1:
            parameter.copy_(0.5 * drawn / parameter.shape[-1] ** 0.5)
        else:
            parameter.copy_(1 + 0.2 * drawn)
    return model


def tiny_engine(
    infill: InfillConfig = BLANKS, *, model: DiffusionGemma | None = None, max_denoising_steps: int = 16
) -> Engine:
    generation = GenerationConfig(max_denoising_steps=max_denoising_steps)
    return Engine(model or tiny_model(), embedded_tokens(), infill, generation)


def fill(engine: Engine, *parts: str, **wishes: object) -> Filled:
    """Asks an engine to fill the gaps between `parts`; nobody cancels."""
    request = Fill(id=1, **{"document": "a.py", "parts": parts} | wishes)  # type: ignore[arg-type]
    return engine.fill(request, received=time.perf_counter(), is_cancelled=lambda: False)
