"""Weights on disk: strict, streaming loading of safetensors in the Hugging Face layout, and saving.

Every header is checked before the first tensor is read, and every parameter must come from the files: nothing is left
at its random initial value. At most one tensor is in memory beside the model.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from midspan_engine.config import ModelConfig
from midspan_engine.errors import CheckpointError, EngineError
from midspan_engine.models.diffusion_gemma import DiffusionGemma, checkpoint_name, is_skipped

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"

_FLOAT_TYPES = {"F64", "F32", "F16", "BF16"}
"""Safetensors' names of the types that hold plain weights."""

_QUANTISED_SUFFIXES = {
    ".weight_scale_2": "NVFP4",
    ".weight_packed": "compressed-tensors",
    ".weight_scale_inv": "block-wise FP8",
    ".weight_scale": "FP8 or INT8 with weight scales",
    ".qweight": "GPTQ or AWQ",
    ".qzeros": "GPTQ or AWQ",
    ".scales": "MLX affine",
    ".absmax": "bitsandbytes",
    "_blocks": "MXFP4",
}
"""Scheme by the ending of the tensor names that give it away, the most telling first."""

_N_NAMED = 3
"""Tensors that an error message names; the rest is counted."""


class _IndexFile(msgspec.Struct):
    weight_map: dict[str, str]


class _QuantisationFile(msgspec.Struct):
    quantization: dict[str, Any] = {}


class _Stored(msgspec.Struct, frozen=True):
    """One tensor as the header of its file describes it."""

    file: Path
    shape: tuple[int, ...]
    dtype: str


def load_weights(
    folder: Path, config: ModelConfig, dtype: torch.dtype, on_progress: Callable[[float], None] = lambda share: None
) -> DiffusionGemma:
    """Returns the model of a checkpoint folder in evaluation mode, on the CPU, with parameters of type `dtype`.

    Reads model.safetensors, or the shards that model.safetensors.index.json names, and tells the share
    of the weights read, 0..1. Raises CheckpointError for missing, extra, mis-shaped or quantised tensors, for truncated
    or missing files, and for folders without safetensors.
    """
    _refuse_quantisation_file(folder)
    stored = _read_headers(_weight_files(folder), folder)
    with torch.device("meta"):
        model = DiffusionGemma(config)
    _check(stored, {checkpoint_name(name): p.shape for name, p in model.named_parameters()}, folder)
    _fill(model, stored, dtype, on_progress)
    return model.eval()


def save_weights(weights: Mapping[str, torch.Tensor], target: Path, dtype: torch.dtype) -> None:
    """Writes weights, given by the model's own names, under the checkpoint's names. Raises as `save_tensors`."""
    save_tensors({checkpoint_name(name): tensor.to(dtype) for name, tensor in weights.items()}, target)


def save_tensors(tensors: Mapping[str, torch.Tensor], target: Path) -> None:
    """Writes a safetensors file that everybody may read; an older file stays whole until the new one is.

    Raises EngineError if it cannot be written.
    """
    partial = target.with_name(f"{target.name}.partial")
    own = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        save_file(own, partial, metadata={"format": "pt"})
        partial.chmod(0o644)  # the library lets nobody else read, which a checkpoint in a shared place must allow
        os.replace(partial, target)
    except (OSError, SafetensorError) as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise EngineError(f"{target} cannot be written ({error}): free some space or give another folder") from error


def load_tensors(file: Path) -> dict[str, torch.Tensor]:
    """Returns the tensors of one safetensors file. Raises CheckpointError when it cannot be read."""
    try:
        return load_file(file)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{file} cannot be read ({error}): restore it from a copy, or begin anew") from error


def _weight_files(folder: Path) -> list[Path]:
    """Returns the files that hold the weights; all of them exist."""
    if (folder / SINGLE_FILE).exists():
        return [folder / SINGLE_FILE]
    index = folder / INDEX_FILE
    if not index.exists():
        pickles = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in folder.glob(pattern))
        if pickles:
            raise CheckpointError(
                f"{folder} holds weights as pickle only ({_some(pickles)}), and only safetensors are loaded: "
                "give a safetensors checkpoint"
            )
        raise CheckpointError(f"{folder} holds neither {SINGLE_FILE} nor {INDEX_FILE}: download the weights too")
    try:
        names = sorted(set(msgspec.json.decode(index.read_bytes(), type=_IndexFile).weight_map.values()))
    except (OSError, msgspec.DecodeError) as error:
        raise CheckpointError(f"{index} is not usable ({error}): download it again") from error
    outside = [name for name in names if Path(name).name != name or not name.endswith(".safetensors")]
    if outside:
        raise CheckpointError(
            f"{index} names files that are no safetensors of its folder ({_some(outside)}): download it again"
        )
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise CheckpointError(f"{folder} lacks {len(missing)} of {len(names)} shards ({_some(missing)}): download them")
    return [folder / name for name in names]


def _read_headers(files: Iterable[Path], folder: Path) -> dict[str, _Stored]:
    """Returns every tensor that the text model could use, by name."""
    stored: dict[str, _Stored] = {}
    for file in files:
        try:
            with safe_open(file, framework="pt") as opened:
                for name in opened.keys():  # noqa: SIM118 - a handle of the library, not a mapping
                    if is_skipped(name):
                        continue
                    if name in stored:
                        raise CheckpointError(
                            f"{folder}: {name} is in {stored[name].file.name} and in {file.name}: "
                            "download the checkpoint into an empty folder"
                        )
                    header = opened.get_slice(name)
                    stored[name] = _Stored(file, tuple(header.get_shape()), header.get_dtype())
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"{file} is truncated or no safetensors file ({error}): download it again") from error
    return stored


def _refuse_quantisation_file(folder: Path) -> None:
    path = folder / "hf_quant_config.json"
    if not path.exists():
        return
    try:
        about = msgspec.json.decode(path.read_bytes(), type=_QuantisationFile).quantization
    except (OSError, msgspec.DecodeError):
        about = {}
    raise _quantised(folder, f"{about.get('quant_algo', 'an unnamed scheme')}, says {path.name}")


def _check(stored: dict[str, _Stored], wanted: dict[str, torch.Size], folder: Path) -> None:
    """Raises CheckpointError unless the stored tensors are exactly the wanted ones, in plain floats."""
    for ending, scheme in _QUANTISED_SUFFIXES.items():
        telling = [name for name in stored if name.endswith(ending)]
        if telling:
            raise _quantised(folder, f"{scheme}, say its tensors {_some(telling)}")
    coded = [f"{name} ({tensor.dtype})" for name, tensor in stored.items() if tensor.dtype not in _FLOAT_TYPES]
    if coded:
        raise _quantised(folder, f"types that are no plain floats, such as {_some(coded)}")
    missing = [name for name in wanted if name not in stored]
    if missing:
        raise CheckpointError(
            f"{folder} lacks {len(missing)} of {len(wanted)} tensors ({_some(missing)}): "
            "its config.json belongs to another checkpoint, or the download is incomplete"
        )
    extra = [name for name in stored if name not in wanted]
    if extra:
        raise CheckpointError(
            f"{folder} holds {len(extra)} tensors that its config.json has no place for ({_some(extra)}): "
            "give an unchanged DiffusionGemma checkpoint; adapters and other architectures are not supported"
        )
    odd = [
        f"{name} is {list(stored[name].shape)}, expected {list(shape)}"
        for name, shape in wanted.items()
        if stored[name].shape != shape
    ]
    if odd:
        raise CheckpointError(
            f"{folder}: {len(odd)} tensors do not fit its config.json ({_some(odd)}): "
            "give the config.json that belongs to these weights"
        )


def _fill(
    model: DiffusionGemma, stored: dict[str, _Stored], dtype: torch.dtype, on_progress: Callable[[float], None]
) -> None:
    """Replaces every parameter by its stored tensor, file by file."""
    by_file: dict[Path, list[str]] = {}
    n_weights, n_read = sum(parameter.numel() for parameter in model.parameters()), 0
    for name in dict(model.named_parameters()):
        by_file.setdefault(stored[checkpoint_name(name)].file, []).append(name)
    for file, names in by_file.items():
        try:
            with safe_open(file, framework="pt") as opened:
                for name in names:
                    tensor = opened.get_tensor(checkpoint_name(name))
                    # A copy of our own: the library's tensor may be the mapped file, which can change under us.
                    own = torch.empty(tensor.shape, dtype=dtype).copy_(tensor)
                    owner, _, leaf = name.rpartition(".")
                    setattr(model.get_submodule(owner), leaf, nn.Parameter(own))
                    n_read += own.numel()
                    on_progress(n_read / n_weights)
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"{file} cannot be read ({error}): download it again") from error


def _quantised(folder: Path, scheme: str) -> CheckpointError:
    return CheckpointError(f"{folder} is quantised ({scheme}), which this version cannot load: use the bf16 checkpoint")


def _some(names: list[str]) -> str:
    """Returns the first few names and how many more there are."""
    more = f" and {len(names) - _N_NAMED} more" if len(names) > _N_NAMED else ""
    return ", ".join(names[:_N_NAMED]) + more
