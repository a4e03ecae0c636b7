"""The names under which a DiffusionGemma checkpoint holds what `DiffusionGemma` has."""

from __future__ import annotations


def checkpoint_name(name: str) -> str:
    """Returns the checkpoint's name of a parameter of `DiffusionGemma`."""
    stem, _, index = name.rpartition(".")
    if stem == "encoder_layer_scalars":
        return f"model.encoder.language_model.layers.{index}.layer_scalar"
    return f"model.decoder.{name}"


def split_expert_names(name: str, n_experts: int) -> list[list[str]]:
    """Returns for each expert the names of the matrices that, below each other, make up its part of a fused tensor.

    `name` is the checkpoint's. Quantised checkpoints often hold the experts so; empty for a tensor that is not theirs.
    """
    layer, _, leaf = name.rpartition(".experts.")
    parts = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}.get(leaf, ())
    return [[f"{layer}.experts.{e}.{part}.weight" for part in parts] for e in range(n_experts)] if parts else []


def is_skipped(name: str) -> bool:
    """Tells whether a checkpoint's tensor is none of the text model's: its name is no parameter's and yet no surprise.

    Images are no input of an editor; the output head is the embedding; rotary tables are computed.
    """
    return (
        name == "lm_head.weight"
        or name.startswith(("model.encoder.vision_tower.", "model.encoder.embed_vision."))
        or name.endswith((".input_min", ".input_max", ".output_min", ".output_max"))
        or ".rotary_emb." in name
    )
