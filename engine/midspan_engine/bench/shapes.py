"""The released checkpoint's shape, and one of the same structure that a CPU takes in its stride."""

from __future__ import annotations

from midspan_engine.config import LayerConfig, ModelConfig

_SLIDING_IN_A_ROW = 5
"""`layer_types`: five sliding layers, then a full one."""


def _layers(n_layers: int, dims: tuple[int, int], n_kv_heads: tuple[int, int]) -> tuple[LayerConfig, ...]:
    """Returns layers, each pair of numbers for sliding and full ones."""
    kinds = (
        LayerConfig(
            is_sliding=True,
            head_dim=dims[0],  # head_dim
            n_kv_heads=n_kv_heads[0],  # num_key_value_heads
            rope_theta=1e4,  # rope_parameters.sliding_attention.rope_theta
            rotated=1.0,  # rope_parameters.sliding_attention.rope_type: default
        ),
        LayerConfig(
            is_sliding=False,
            head_dim=dims[1],  # global_head_dim
            n_kv_heads=n_kv_heads[1],  # num_global_key_value_heads
            rope_theta=1e6,  # rope_parameters.full_attention.rope_theta
            rotated=0.25,  # rope_parameters.full_attention.partial_rotary_factor
        ),
    )
    return tuple(kinds[(index + 1) % (_SLIDING_IN_A_ROW + 1) == 0] for index in range(n_layers))


RELEASED = ModelConfig(
    vocab_size=262_144,  # vocab_size
    hidden_size=2816,  # hidden_size
    intermediate_size=2112,  # intermediate_size
    moe_intermediate_size=704,  # moe_intermediate_size
    n_experts=128,  # num_experts
    top_k_experts=8,  # top_k_experts
    n_heads=16,  # num_attention_heads
    sliding_window=1024,  # sliding_window
    rms_norm_eps=1e-6,  # rms_norm_eps
    softcap=30.0,  # final_logit_softcapping
    max_positions=262_144,  # max_position_embeddings
    canvas_length=256,  # canvas_length
    layers=_layers(30, (256, 512), (8, 2)),  # num_hidden_layers
)
"""Source: config.json of `google/diffusiongemma-26B-A4B-it`, each number's key beside it; all but the first and
canvas_length are keys of its text_config."""

SMALL = ModelConfig(
    vocab_size=512,
    hidden_size=64,
    intermediate_size=96,
    moe_intermediate_size=32,
    n_experts=8,
    top_k_experts=2,
    n_heads=4,
    sliding_window=48,
    rms_norm_eps=1e-6,
    softcap=30.0,
    max_positions=4096,
    canvas_length=256,
    layers=_layers(6, (16, 32), (2, 1)),
)
"""Every part of the released shape, and a window that a prompt outgrows."""

SHAPES = {"released": RELEASED, "small": SMALL}
