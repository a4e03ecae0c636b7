"""Whether Midspan can read a checkpoint's quantisation, by what its config files say of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from midspan_engine.errors import CheckpointError

READABLE = "NVFP4, FP8, INT8 and packed integers of modelopt and compressed-tensors, and GGUF"

_FORMATS = {"pack-quantized", "float-quantized", "int-quantized", "naive-quantized", "nvfp4-pack-quantized"}
"""Of compressed-tensors. "mixed-precision" stands for several of them, each named in its group."""
_ALGORITHMS = {"NVFP4", "FP8", "MIXED_PRECISION"}
"""Of modelopt."""

_FOREIGN_ENDINGS = {
    ".weight_scale_inv": "block-wise FP8",
    ".weight_g_idx": "compressed-tensors with an order of activations",
    ".pre_quant_scale": "modelopt AWQ",
    ".qweight": "GPTQ or AWQ",
    ".qzeros": "GPTQ or AWQ",
    ".scales": "MLX affine",
    ".absmax": "bitsandbytes",
    "_blocks": "MXFP4",
}
"""Scheme by the ending of the tensor names that give it away."""


class _ConfigFile(msgspec.Struct):
    quantization_config: dict[str, Any] | None = None
    quantization: dict[str, Any] | None = None


def check_scheme(folder: Path) -> None:
    """Raises CheckpointError when config.json or hf_quant_config.json names a quantisation that cannot be read."""
    for name in ("config.json", "hf_quant_config.json"):
        path = folder / name
        if not path.exists():
            continue
        try:
            file = msgspec.json.decode(path.read_bytes(), type=_ConfigFile)
        except (OSError, msgspec.DecodeError) as error:
            raise CheckpointError(f"{path} is not usable ({error}): download it again") from error
        if file.quantization_config is not None:
            _check_config(folder, file.quantization_config)
        elif file.quantization is not None and name == "config.json":
            raise refusal(folder, "MLX, says its config.json")
        elif file.quantization is not None:
            _check_algorithm(folder, file.quantization)


def check_names(folder: Path, names: list[str]) -> None:
    """Raises CheckpointError when tensors that nobody asked for give away a scheme that cannot be read."""
    for ending, scheme in _FOREIGN_ENDINGS.items():
        telling = [name for name in names if name.endswith(ending)]
        if telling:
            raise refusal(folder, f"{scheme}, says its tensor {telling[0]}")


def refusal(folder: Path, scheme: str) -> CheckpointError:
    """Returns the error for a scheme that cannot be read."""
    return CheckpointError(
        f"{folder} is quantised ({scheme}), which this version cannot load: use the bf16 checkpoint, whose experts can "
        f"be packed into 4 bits while it is loaded (MIDSPAN_WEIGHTS=4bit); ready-made, {READABLE} are read"
    )


def _check_config(folder: Path, config: dict[str, Any]) -> None:
    method = config.get("quant_method", "an unnamed scheme")
    if method == "modelopt":
        _check_algorithm(folder, config)
    elif method == "compressed-tensors":
        _check_compressed(folder, config)
    else:
        raise refusal(folder, f"{method}, says its config.json")


def _check_algorithm(folder: Path, config: dict[str, Any]) -> None:
    algorithm = config.get("quant_algo", "an unnamed scheme")
    if algorithm not in _ALGORITHMS:
        raise refusal(folder, f"modelopt {algorithm}")


def _check_compressed(folder: Path, config: dict[str, Any]) -> None:
    groups = config.get("config_groups") or {}
    outer = config.get("format", "an unnamed format")
    formats = {group.get("format") or outer for group in groups.values()} if outer == "mixed-precision" else {outer}
    if unknown := sorted(formats - _FORMATS):
        raise refusal(folder, f"compressed-tensors in the format {unknown[0]}")
    if config.get("transform_config"):
        raise refusal(folder, "compressed-tensors with transformed activations")
    if (config.get("sparsity_config") or {}).get("format", "dense") != "dense":
        raise refusal(folder, "compressed-tensors with sparse weights")
    for group in groups.values():
        weights = group.get("weights") or {}
        if weights.get("num_bits") not in (4, 8):
            raise refusal(folder, f"compressed-tensors with {weights.get('num_bits')} bits a weight")
        if weights.get("strategy") == "block":
            raise refusal(folder, "compressed-tensors with scales of blocks")
