"""A training recipe: a TOML file that says what is trained, on what, and for how long."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

from midspan_engine.config import InfillConfig
from midspan_engine.errors import InputError
from midspan_engine.training.vocabulary import SPECIAL_TOKENS

RECIPES = Path(__file__).parent / "recipes"

_VISION = {
    "model_type": "gemma4_vision",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "position_embedding_size": 64,
}
"""The smallest tower that transformers accepts."""
_NEVER_IN_TEXT = SPECIAL_TOKENS.index("<unk>")
"""A byte-level vocabulary spells everything, so this id marks the images that never come."""


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
    quoted_weight: float
    """Weight of the gap's causal loss behind a quoted suffix."""
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
    notes: str = ""
    """What readers of the model card should know about the run."""


def load_recipe(name: str) -> Recipe:
    """Reads a recipe by path, or by the name of one that ships. Raises InputError when it is missing or wrong."""
    path = Path(name) if name.endswith(".toml") else RECIPES / f"{name}.toml"
    try:
        recipe = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Recipe)
    except FileNotFoundError as error:
        known = ", ".join(sorted(found.stem for found in RECIPES.glob("*.toml")))
        raise InputError(f"no recipe {name}: give the path of a .toml file, or one of: {known}") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except (msgspec.ValidationError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is no usable recipe: {error}") from error
    if fault := _fault(recipe):
        raise InputError(f"{path} is no usable recipe: {fault}")
    return recipe


def _fault(recipe: Recipe) -> str | None:
    """Returns what the fields contradict each other in, or None."""
    shape, data, infill = recipe.shape, recipe.data, recipe.infill
    if data.row_tokens > shape.sliding_window:
        return "data.row_tokens must not be more than shape.sliding_window"
    if infill.prompt_tokens > data.row_tokens:
        return "infill.prompt_tokens must not be more than data.row_tokens, the longest prompt that is trained"
    if infill.tail_tokens + infill.gap_tokens > shape.canvas_length:
        return "infill.tail_tokens and infill.gap_tokens together must fit into shape.canvas_length"
    if infill.mask_token_id is None or infill.blank_token_id is None:
        return "infill.mask_token_id and infill.blank_token_id are needed"
    if not shape.layer_types or shape.layer_types[-1] != "full_attention":
        return "the last of shape.layer_types must be full_attention"
    if min(recipe.schedule.steps, recipe.schedule.warmup_steps, data.canvases_per_row) < 1:
        return "schedule.steps, schedule.warmup_steps and data.canvases_per_row must be at least 1"
    return None


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
        # unsaid, transformers takes 512 for the full layers
        "global_head_dim": shape.head_dim,
        "num_global_key_value_heads": shape.num_key_value_heads,
        "rope_parameters": rope,
        "max_position_embeddings": 2 * shape.sliding_window,
        "final_logit_softcapping": 30.0,
        "hidden_activation": "gelu_pytorch_tanh",
        "rms_norm_eps": 1e-6,
        "use_bidirectional_attention": "vision",
        "pad_token_id": SPECIAL_TOKENS.index("<pad>"),
        "eos_token_id": SPECIAL_TOKENS.index("<eos>"),
        "bos_token_id": SPECIAL_TOKENS.index("<bos>"),
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
        # transformers always builds a vision tower, by default one of 0.55B parameters; no text reaches this one
        "vision_config": dict(_VISION),
        "image_token_id": _NEVER_IN_TEXT,
        "boi_token_id": _NEVER_IN_TEXT,
        "eoi_token_id": _NEVER_IN_TEXT,
    }
