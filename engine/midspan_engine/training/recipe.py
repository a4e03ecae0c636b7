"""A training recipe: a TOML file that says what is trained, on what, and for how long.

A recipe may name another one as its `base`, by the name of one that ships or by a path from its own folder; it then
says only what differs.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal

import msgspec

from midspan_engine.config import InfillConfig
from midspan_engine.errors import InputError
from midspan_engine.training.vocabulary import N_IDS, SPECIAL_TOKENS

RECIPES = Path(__file__).parent / "recipes"
ABLATIONS = "ablations"
"""Folder of the recipes that are compared with each other."""

VISION = {
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
    """How rows are drawn, and from what."""

    vocabulary: int = N_IDS
    """Token ids of the vocabulary that is learned for it; data of one's own brings its own."""
    row_tokens: int
    """Tokens of a row; at most the sliding window."""
    canvases_per_row: int
    causal_rows_per_step: int
    """Rows of one optimiser step, over all processes, while the causal loss is trained alone."""
    infill_rows_per_step: int
    """The same while canvases are trained too; small, for steps are scarcer than tokens at this budget."""


class Schedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Length, learning rates and phases. All shares are of the length."""

    steps: int = 0
    minutes: float = 0.0
    """Length in minutes of training, compiling and saving not counted, in place of one in steps."""
    causal_share: float
    """Share with the causal loss alone: dense training first, infilling after."""
    decay_share: float
    """Share, at the end, over which the learning rate falls linearly to a tenth."""
    warmup_steps: int
    matrix_optimiser: Literal["muon", "adamw"] = "muon"
    matrix_lr: float
    """On the matrices of the layers."""
    other_lr: float
    """AdamW, on embeddings, norms and scalars."""
    weight_decay: float
    quoted_weight: float
    """Weight of the gap's causal loss behind a quoted suffix."""
    canvas_weight: float
    """Weight of the canvas loss beside the causal loss."""
    blank_weight: float
    """What the surplus blanks of a gap, behind the one that ends its text, weigh together, in tokens."""
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
    path = _path(name)
    try:
        recipe = msgspec.convert(_read(path, ()), Recipe)
    except FileNotFoundError as error:
        known = ", ".join(sorted(found.stem for found in RECIPES.glob("*.toml")))
        missing = name if Path(error.filename) == path else f"{error.filename}, the base of {name}"
        raise InputError(f"no recipe {missing}: give the path of a .toml file, or one of: {known}") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except (msgspec.ValidationError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is no usable recipe: {error}") from error
    if fault := _fault(recipe):
        raise InputError(f"{path} is no usable recipe: {fault}")
    return recipe


def ablations() -> list[str]:
    """Returns the names of the variants that ship to be compared with each other, their base first."""
    found = sorted(path.stem for path in (RECIPES / ABLATIONS).glob("*.toml"))
    return [f"{ABLATIONS}/{name}" for name in sorted(found, key=lambda name: name != "base")]


def title(name: str) -> str:
    """Returns what a recipe, named as for `load_recipe`, is called where its runs are kept."""
    return Path(name.removesuffix(".toml")).name


def _path(name: str, folder: Path = Path()) -> Path:
    return folder / name if name.endswith(".toml") else RECIPES / f"{name}.toml"


def _read(path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    """Returns a recipe's fields, those of its base included."""
    if path in above:
        raise InputError(f"{path} is no usable recipe: its base leads back to itself")
    own = tomllib.loads(path.read_text(encoding="utf-8"))
    base = own.pop("base", None)
    return own if base is None else _merged(_read(_path(str(base), path.parent), (*above, path)), own)


def _merged(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    tables = {name for name, value in own.items() if isinstance(value, dict) and isinstance(base.get(name), dict)}
    return {**base, **own, **{name: _merged(base[name], own[name]) for name in tables}}


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
    if (recipe.schedule.steps > 0) == (recipe.schedule.minutes > 0):
        return "either schedule.steps or schedule.minutes must be more than 0"
    if min(recipe.schedule.warmup_steps, data.canvases_per_row) < 1:
        return "schedule.warmup_steps and data.canvases_per_row must be at least 1"
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
        "vision_config": dict(VISION),
        "image_token_id": _NEVER_IN_TEXT,
        "boi_token_id": _NEVER_IN_TEXT,
        "eoi_token_id": _NEVER_IN_TEXT,
    }
