"""What a checkpoint folder says about itself: config.json, generation_config.json and infill_config.json."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from midspan_engine.errors import CheckpointError

MODEL_TYPE = "diffusion_gemma"

_File = TypeVar("_File", bound=msgspec.Struct)


class LayerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One transformer layer's attention."""

    is_sliding: bool
    head_dim: int
    n_kv_heads: int
    rope_theta: float
    rotated: float
    """Share of the head's pairs that RoPE turns."""


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The text model's shape. Source: `text_config` and `canvas_length` of config.json."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    moe_intermediate_size: int
    n_experts: int
    top_k_experts: int
    n_heads: int
    sliding_window: int
    rms_norm_eps: float
    softcap: float | None
    max_positions: int
    canvas_length: int
    layers: tuple[LayerConfig, ...]

    @property
    def n_layers(self) -> int:
        """The number of layers."""
        return len(self.layers)

    @property
    def kv_numbers(self) -> int:
        """How many numbers one token takes in a KV cache."""
        return sum(2 * layer.n_kv_heads * layer.head_dim for layer in self.layers)


class GenerationConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How the reference sampler is asked. Defaults are those of the released 26B checkpoint."""

    max_denoising_steps: int = 48
    max_new_tokens: int = 256
    entropy_bound: float = 0.1
    t_max: float = 0.8
    t_min: float = 0.4
    confidence_threshold: float = 0.005
    stability_threshold: int = 1
    eos_token_ids: tuple[int, ...] = (1, 106, 50)
    pad_token_id: int = 0


class InfillConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a checkpoint wants to be asked for infilling. Source: infill_config.json; defaults fit the 26B checkpoint."""

    prompt: Literal["raw", "chat"] | None = None
    """Whether the document alone is read or a conversation about it; None for chat where there is a template for it."""
    noise: Literal["uniform", "mask"] = "uniform"
    order: Literal["entropy", "left_to_right"] = "entropy"
    """Which gap slots a denoising step accepts: the most certain ones, or a run from the left."""
    mask_token_id: int | None = None
    blank_token_id: int | None = None
    """What surplus gap slots hold; None for a checkpoint that knows no such token."""
    length: Literal["blanks", "probe", "echo", "fixed"] | None = None
    """How the length of a gap is found, see `length_policy`; None for blanks where there is such a token, else probe.
    On a CPU a probe takes as many times longer as it has rows."""
    languages: tuple[str, ...] | None = None
    """LSP language ids the checkpoint was trained on; None for all."""
    prompt_tokens: Annotated[int, msgspec.Meta(ge=1)] = 4096
    """Most tokens of context before the canvas."""
    tail_tokens: Annotated[int, msgspec.Meta(ge=0)] = 8
    """Pinned slots before the gap."""
    head_tokens: Annotated[int, msgspec.Meta(ge=0)] = 24
    """Pinned slots after the gap."""
    gap_tokens: Annotated[int, msgspec.Meta(ge=1)] = 32
    """Most slots of one gap."""
    commit_confidence: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.5
    """Left-to-right order only: a run is committed while the top-1 probability stays above this."""
    causal_weight: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0
    """Left-to-right order only: weight of the encoder's opinion beside the canvas' own."""
    sure_confidence: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    """Probability from which the encoder alone commits a token; None for never."""
    quote_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Most tokens of the suffix that are quoted to the encoder for that opinion; needs mask and blank tokens."""
    repeat_weights: tuple[Annotated[float, msgspec.Meta(ge=0, lt=1)], ...] = ()
    """Share of what the document repeats in that opinion, by the number of tokens that match; the last for more."""
    workspace_weights: tuple[Annotated[float, msgspec.Meta(ge=0, lt=1)], ...] = ()
    """The same of what the other files of the workspace repeat; empty for not looking there."""
    rival_passes: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Most encoder passes in search of a text more probable than the draft, see `rivals`; needs that opinion."""
    instructions: bool = False
    """Whether the checkpoint follows instructions."""
    confidence_power: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    """Calibrates: a candidate's confidence is the product of its tokens' probabilities to this power."""

    @property
    def finds_length(self) -> Literal["blanks", "probe", "echo", "fixed"]:
        """How the length of a gap is found."""
        return self.length or ("probe" if self.blank_token_id is None else "blanks")


class _GenerationFile(msgspec.Struct):
    max_denoising_steps: Annotated[int, msgspec.Meta(ge=1)] | None = None
    max_new_tokens: int | None = None
    sampler_config: dict[str, Any] | None = None
    t_max: Annotated[float, msgspec.Meta(gt=0)] | None = None
    t_min: Annotated[float, msgspec.Meta(gt=0)] | None = None
    confidence_threshold: float | None = None
    stability_threshold: int | None = None
    eos_token_id: int | list[int] | None = None
    pad_token_id: int | None = None


class _RopeFile(msgspec.Struct):
    rope_theta: float
    rope_type: str = "default"
    partial_rotary_factor: float = 1.0


class _LayerFile(msgspec.Struct):
    head_dim: int | None = None
    num_key_value_heads: int | None = None


class _TextFile(msgspec.Struct):
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    sliding_window: int
    layer_types: list[str]
    rope_parameters: dict[str, _RopeFile]
    num_experts: int
    top_k_experts: int
    moe_intermediate_size: int
    max_position_embeddings: int
    rms_norm_eps: float = 1e-6
    final_logit_softcapping: float | None = 30.0
    hidden_activation: str = "gelu_pytorch_tanh"
    attention_bias: bool = False
    global_head_dim: int | None = None
    num_global_key_value_heads: int | None = None
    per_layer_config: dict[str, _LayerFile] | None = None


class _ConfigFile(msgspec.Struct):
    model_type: str = ""
    canvas_length: int = 256
    text_config: msgspec.Raw = msgspec.Raw(b"")


def embedded_checkpoint() -> Path:
    """Returns the folder of the checkpoint that ships with the engine."""
    return Path(__file__).parent / "checkpoint"


def load_model_config(folder: Path) -> ModelConfig:
    """Reads config.json; accepts both spellings of the full layers' shape (global_* keys, or per_layer_config).

    Raises CheckpointError for a folder that is missing, foreign or inconsistent.
    """
    if not folder.is_dir():
        raise CheckpointError(f"no checkpoint folder at {folder}: give a folder that holds config.json")
    if not (folder / "config.json").exists() and any(folder.glob("*.gguf")):
        raise CheckpointError(
            f"{folder} holds a GGUF file alone: put config.json, generation_config.json and tokenizer.json of the "
            "checkpoint that it was made from beside it"
        )
    file = _read(folder / "config.json", _ConfigFile)
    if file.model_type != MODEL_TYPE or not bytes(file.text_config):
        raise CheckpointError(
            f"{folder} holds a {file.model_type or 'nameless'} model, not {MODEL_TYPE}: "
            "give the folder of a DiffusionGemma checkpoint"
        )
    try:
        text = msgspec.json.decode(file.text_config, type=_TextFile)
    except msgspec.ValidationError as error:
        raise CheckpointError(f"{folder / 'config.json'}: text_config: {error}") from error
    return _model_config(text, file.canvas_length, folder)


def _model_config(text: _TextFile, canvas_length: int, folder: Path) -> ModelConfig:
    if text.hidden_activation != "gelu_pytorch_tanh" or text.attention_bias:
        raise CheckpointError(f"{folder}: only gelu_pytorch_tanh without attention bias is supported")
    if len(text.layer_types) != text.num_hidden_layers:
        raise CheckpointError(f"{folder}: {len(text.layer_types)} layer_types for {text.num_hidden_layers} layers")
    if text.layer_types[-1] != "full_attention":
        raise CheckpointError(f"{folder}: the last layer must be full_attention")
    layers = []
    for index, kind in enumerate(text.layer_types):
        if kind not in ("sliding_attention", "full_attention") or kind not in text.rope_parameters:
            raise CheckpointError(f"{folder}: layer {index} is {kind}, which is unknown or has no rope_parameters")
        rope = text.rope_parameters[kind]
        if rope.rope_type not in ("default", "proportional"):
            raise CheckpointError(f"{folder}: rope_type {rope.rope_type} is not supported")
        own = (text.per_layer_config or {}).get(str(index), _LayerFile())
        is_full = kind == "full_attention"
        head_dim = own.head_dim or (text.global_head_dim if is_full else None) or text.head_dim
        n_kv_heads = own.num_key_value_heads or (text.num_global_key_value_heads if is_full else None)
        layers.append(
            LayerConfig(
                is_sliding=not is_full,
                head_dim=head_dim,
                n_kv_heads=n_kv_heads or text.num_key_value_heads,
                rope_theta=rope.rope_theta,
                rotated=rope.partial_rotary_factor if rope.rope_type == "proportional" else 1.0,
            )
        )
    return ModelConfig(
        vocab_size=text.vocab_size,
        hidden_size=text.hidden_size,
        intermediate_size=text.intermediate_size,
        moe_intermediate_size=text.moe_intermediate_size,
        n_experts=text.num_experts,
        top_k_experts=text.top_k_experts,
        n_heads=text.num_attention_heads,
        sliding_window=text.sliding_window,
        rms_norm_eps=text.rms_norm_eps,
        softcap=text.final_logit_softcapping,
        max_positions=text.max_position_embeddings,
        canvas_length=canvas_length,
        layers=tuple(layers),
    )


def load_generation_config(folder: Path) -> GenerationConfig:
    """Reads generation_config.json; a missing file or key means the default. Raises CheckpointError for a bad one."""
    path = folder / "generation_config.json"
    if not path.exists():
        return GenerationConfig()
    file = _read(path, _GenerationFile)
    given = {
        name: value
        for name, value in msgspec.structs.asdict(file).items()
        if value is not None and name not in ("sampler_config", "eos_token_id")
    }
    if file.sampler_config and file.sampler_config.get("entropy_bound") is not None:
        given["entropy_bound"] = float(file.sampler_config["entropy_bound"])
    if file.eos_token_id is not None:
        ids = file.eos_token_id
        given["eos_token_ids"] = tuple(ids) if isinstance(ids, list) else (ids,)
    return GenerationConfig(**given)


def load_infill_config(folder: Path) -> InfillConfig:
    """Reads infill_config.json; a missing file means the defaults. Raises CheckpointError for a bad one."""
    path = folder / "infill_config.json"
    if not path.exists():
        return InfillConfig()
    infill = _read(path, InfillConfig)
    if infill.noise == "mask" and infill.mask_token_id is None:
        raise CheckpointError(f"{path}: noise is mask, but mask_token_id is missing")
    if infill.causal_weight > 0 and None in (infill.mask_token_id, infill.blank_token_id):
        raise CheckpointError(f"{path}: causal_weight needs mask_token_id and blank_token_id")
    if infill.causal_weight > 0 and infill.order != "left_to_right":
        raise CheckpointError(f"{path}: causal_weight needs order left_to_right")
    if infill.length == "blanks" and infill.blank_token_id is None:
        raise CheckpointError(f"{path}: length is blanks, but blank_token_id is missing")
    if infill.mask_token_id is not None and infill.mask_token_id == infill.blank_token_id:
        raise CheckpointError(f"{path}: mask_token_id and blank_token_id must differ")
    return infill


def write_infill_config(folder: Path, infill: InfillConfig) -> None:
    """Writes infill_config.json, all keys but those that are None."""
    known = {name: value for name, value in msgspec.to_builtins(infill).items() if value is not None}
    (folder / "infill_config.json").write_bytes(msgspec.json.format(msgspec.json.encode(known)) + b"\n")


def _read(path: Path, kind: type[_File]) -> _File:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing: give a folder in the Hugging Face layout") from error
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise CheckpointError(f"{path} is not usable: {error}") from error
