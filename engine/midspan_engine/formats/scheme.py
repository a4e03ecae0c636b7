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


class _Weights(msgspec.Struct):
    num_bits: Any = None
    strategy: Any = None


class _Group(msgspec.Struct):
    format: str | None = None
    weights: _Weights | None = None


class _Sparsity(msgspec.Struct):
    format: str | None = None


class _Scheme(msgspec.Struct):
    quant_method: str | None = None
    quant_algo: str | None = None
    format: str | None = None
    config_groups: dict[str, _Group] | None = None
    sparsity_config: _Sparsity | None = None
    transform_config: Any = None


class _ConfigFile(msgspec.Struct):
    quantization_config: _Scheme | None = None
    quantization: _Scheme | None = None


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


def _check_config(folder: Path, config: _Scheme) -> None:
    if config.quant_method == "modelopt":
        _check_algorithm(folder, config)
    elif config.quant_method == "compressed-tensors":
        _check_compressed(folder, config)
    else:
        raise refusal(folder, f"{config.quant_method or 'an unnamed scheme'}, says its config.json")


def _check_algorithm(folder: Path, config: _Scheme) -> None:
    if config.quant_algo not in _ALGORITHMS:
        raise refusal(folder, f"modelopt {config.quant_algo or 'an unnamed scheme'}")


def _check_compressed(folder: Path, config: _Scheme) -> None:
    groups = list((config.config_groups or {}).values())
    outer = config.format or "an unnamed format"
    formats = {group.format or outer for group in groups} if outer == "mixed-precision" else {outer}
    if unknown := sorted(formats - _FORMATS):
        raise refusal(folder, f"compressed-tensors in the format {unknown[0]}")
    if config.transform_config:
        raise refusal(folder, "compressed-tensors with transformed activations")
    if config.sparsity_config is not None and config.sparsity_config.format not in (None, "dense"):
        raise refusal(folder, "compressed-tensors with sparse weights")
    for group in groups:
        weights = group.weights or _Weights()
        if weights.num_bits not in (4, 8):
            raise refusal(folder, f"compressed-tensors with {weights.num_bits} bits a weight")
        if weights.strategy == "block":
            raise refusal(folder, "compressed-tensors with scales of blocks")
