"""A training recipe: a TOML file that says what is trained, on what, and for how long."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

from midspan_engine.config import InfillConfig
from midspan_engine.errors import InputError

RECIPES = Path(__file__).parent / "recipes"


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The model; names as in `text_config` of a DiffusionGemma checkpoint."""

    hidden_size: int
    intermediate_size: int
    moe_intermediate_size: int
    num_experts: int
    top_k_experts: int
    layer_types: list[str]
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    sliding_window: int
    canvas_length: int


class Data(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How rows are drawn."""

    row_tokens: int
    """Tokens of a row; at most the sliding window."""
    canvases_per_row: int
    causal_rows_per_step: int
    """Rows of one optimiser step, over all processes, while the causal loss is trained alone."""
    infill_rows_per_step: int
    """The same while canvases are trained too; small, for steps are scarcer than tokens at this budget."""


class Schedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Learning rates and phases. All shares are of the planned steps."""

    steps: int
    causal_share: float
    """Share of the steps with the causal loss alone: dense training first, infilling after."""
    decay_share: float
    """Share of the steps, at the end, over which the learning rate falls linearly to a tenth."""
    warmup_steps: int
    matrix_lr: float
    """Muon, on the matrices of the layers."""
    other_lr: float
    """AdamW, on embeddings, norms and scalars."""
    weight_decay: float
    canvas_weight: float
    """Weight of the canvas loss beside the causal loss."""
    self_conditioning_share: float
    """Share of the steps with a second, self-conditioned canvas pass."""
    average_decay: float
    """Decay per step of the exponential average of the weights, which is what ships."""


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All of a training run but its data folder."""

    seed: int
    shape: Shape
    data: Data
    schedule: Schedule
    infill: InfillConfig


def load_recipe(name: str) -> Recipe:
    """Reads a recipe by path, or by the name of one that ships. Raises InputError when it is missing or wrong."""
    path = Path(name) if name.endswith(".toml") else RECIPES / f"{name}.toml"
    try:
        return msgspec.convert(tomllib.loads(path.read_text()), Recipe)
    except FileNotFoundError as error:
        known = ", ".join(sorted(found.stem for found in RECIPES.glob("*.toml")))
        raise InputError(f"no recipe {name}: give the path of a .toml file, or one of: {known}") from error
    except (msgspec.ValidationError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path}: {error}") from error


def checkpoint_config(shape: Shape, vocab_size: int) -> dict[str, object]:
    """Returns config.json of a checkpoint of this shape, as transformers reads it."""
    rope = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0},
    }
    text = {
        **msgspec.structs.asdict(shape),
        "model_type": "diffusion_gemma_text",
        "vocab_size": vocab_size,
        "num_hidden_layers": len(shape.layer_types),
        "rope_parameters": rope,
        "max_position_embeddings": 2 * shape.sliding_window,
        "final_logit_softcapping": 30.0,
        "hidden_activation": "gelu_pytorch_tanh",
        "rms_norm_eps": 1e-6,
        "use_bidirectional_attention": "vision",
        "pad_token_id": 0,
        "eos_token_id": 1,
        "bos_token_id": 2,
        "tie_word_embeddings": True,
    }
    del text["canvas_length"]
    return {
        "architectures": ["DiffusionGemmaForBlockDiffusion"],
        "model_type": "diffusion_gemma",
        "canvas_length": shape.canvas_length,
        "dtype": "bfloat16",
        "tie_word_embeddings": True,
        "text_config": text,
        "vision_config": None,
    }
