"""Small checkpoints in the quantised formats that users download, and what each of their matrices is worth.

compressed-tensors writes and reads its own formats, the gguf package reads GGUF's; modelopt's NVFP4 is drawn at random
and decoded by the book.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward import dequantize
from safetensors.torch import load_file, save_file

from midspan_engine.formats.gguf_source import gguf_name
from midspan_engine.models.checkpoint_names import is_skipped, split_expert_names
from oracle import Shape, write_checkpoint

Tensors = dict[str, torch.Tensor]
Encoded = tuple[Tensors, torch.Tensor]
"""Tensors by what follows the name of the weight, and the weights that they stand for."""
Encode = Callable[[torch.Tensor], Encoded]

SHAPE = Shape(layers="sf", hidden=256, experts=4, expert_width=64)
"""256 divides the hidden size, as K blocks need, and not the other widths, as in the released checkpoint."""

_FP4 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def base(folder: Path) -> Tensors:
    """Writes a plain checkpoint and returns its text model's tensors."""
    write_checkpoint(folder, SHAPE)
    tensors = load_file(folder / "model.safetensors")
    return {name: tensor for name, tensor in tensors.items() if not is_skipped(name)}


def modelopt_fp4(weight: torch.Tensor) -> Encoded:
    """Draws codes and scales; the weights are of the usual size."""
    n_out, n_in = weight.shape
    codes = torch.randint(256, (n_out, n_in // 2), dtype=torch.uint8)
    scales = (torch.rand(n_out, n_in // 16) * 400 + 40).to(torch.float8_e4m3fn)
    of_matrix = torch.tensor(0.2 / n_in**0.5 / 440)
    nibbles = torch.stack([codes & 15, codes >> 4], -1).flatten(-2).int()
    values = torch.where(nibbles >= 8, -_FP4[nibbles % 8], _FP4[nibbles % 8])
    worth = values * (scales.float() * of_matrix).repeat_interleave(16, -1)
    stored = {"": codes, "_scale": scales, "_scale_2": of_matrix}
    return stored, worth


def compressed(kind: str, **args: Any) -> Encode:
    """Returns an encoder by compressed-tensors' own package."""
    arguments = QuantizationArgs(**args)
    scheme = QuantizationScheme(targets=["Linear"], weights=arguments)
    compressor: Any = BaseCompressor.get_value_from_registry(kind)

    def encode(weight: torch.Tensor) -> Encoded:
        size = {"group": args.get("group_size"), "tensor_group": 16}.get(args["strategy"]) or weight.shape[1]
        groups = weight.unflatten(-1, (-1, size))
        given = {"weight": weight}
        if args["strategy"] == "tensor_group":
            given["weight_global_scale"] = 448 * 6 / weight.abs().max().view(1)
            given["weight_scale"] = (groups.abs().amax(-1) / 6 * given["weight_global_scale"]).to(torch.float8_e4m3fn)
            given["weight_scale"] = given["weight_scale"].float()
        elif args["symmetric"]:
            top = 448.0 if args["type"] == "float" else 2.0 ** (args["num_bits"] - 1) - 1
            given["weight_scale"] = groups.abs().amax(-1) / top
            if args["strategy"] == "tensor":
                given["weight_scale"] = weight.abs().max().view(1) / top
        else:
            low, high = groups.amin(-1), groups.amax(-1)
            given["weight_scale"] = (high - low) / (2 ** args["num_bits"] - 1)
            zero = -(2 ** (args["num_bits"] - 1)) - low / given["weight_scale"]
            given["weight_zero_point"] = zero.round().clamp(-8, 7).to(torch.int8)
        stored = compressor.compress(given, scheme)
        if args["strategy"] == "tensor_group":  # the compressor itself computes in bf16
            values = unpack_fp4_from_uint8(stored["weight_packed"], *weight.shape, dtype=torch.float32)
            scale, of_matrix = stored["weight_scale"].float(), stored["weight_global_scale"]
            worth = dequantize(values, scale, args=arguments, dtype=torch.float32, global_scale=of_matrix)
        else:
            worth = compressor.decompress(stored, scheme)["weight"].float()
        return {name.removeprefix("weight"): tensor for name, tensor in stored.items()}, worth

    return encode


def write_quantised(
    folder: Path, plain: Path, tensors: Tensors, encode: Encode, about: dict[str, Any], *, split: bool, linears: bool
) -> Tensors:
    """Writes a checkpoint whose experts, and `linears`, are encoded; returns all weights as what they are worth."""
    torch.manual_seed(1)
    stored: Tensors = {}
    worth: Tensors = {}
    for name, tensor in tensors.items():
        if ".experts." in name:
            encoded = list(_experts(name, tensor, encode, split))
            worth[name] = torch.stack([part for _, part in encoded])
            stored |= _fused(encoded) if not split else {key: t for part, _ in encoded for key, t in part.items()}
        elif linears and tensor.dim() == 2 and not re.search("embed_tokens|router", name):
            parts, worth[name] = encode(tensor)
            stored |= {name + ending: part for ending, part in parts.items()}
        else:
            stored[name] = worth[name] = tensor
    _copy_configs(plain, folder, about)
    save_file({name: tensor.contiguous() for name, tensor in stored.items()}, folder / "model.safetensors")
    return worth


def write_plain(folder: Path, plain: Path, worth: Tensors) -> None:
    """Writes the checkpoint that a quantised one stands for."""
    _copy_configs(plain, folder, None)
    save_file({name: tensor.contiguous() for name, tensor in worth.items()}, folder / "model.safetensors")


def write_gguf(folder: Path, plain: Path, tensors: Tensors, kind: str, narrow: str) -> Tensors:
    """Writes a GGUF checkpoint: matrices as `kind`, those that its blocks do not divide as `narrow`."""
    _copy_configs(plain, folder, None)
    random = np.random.default_rng(0)
    writer = gguf.GGUFWriter(folder / "model.gguf", "diffusion-gemma")
    writer.add_tensor("rope_freqs.weight", np.ones(4, dtype=np.float32))
    worth: Tensors = {}
    for name, tensor in tensors.items():
        is_matrix = tensor.dim() > 1 and "router" not in name
        quant = gguf.GGMLQuantizationType[kind if tensor.shape[-1] % 256 == 0 else narrow]
        if is_matrix:
            data = _random_blocks(random, quant, tensor)
            writer.add_tensor(gguf_name(name), data, raw_dtype=quant)
            worth[name] = torch.from_numpy(gguf.quants.dequantize(data, quant)).view(tensor.shape)
        else:
            writer.add_tensor(gguf_name(name), tensor.float().numpy())
            worth[name] = tensor
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return worth


def _experts(name: str, tensor: torch.Tensor, encode: Encode, split: bool) -> Iterator[Encoded]:
    """Yields each expert's encoded parts, under their names when the experts are split, and its weights."""
    for expert, parts in zip(tensor, split_expert_names(name, len(tensor)), strict=True):
        if not split:
            encoded, worth = encode(expert)
            yield {name + ending: part for ending, part in encoded.items()}, worth
            continue
        pieces = [encode(piece) for piece in expert.chunk(len(parts))]
        named = {
            part + ending: t
            for part, (encoded, _) in zip(parts, pieces, strict=True)
            for ending, t in {**encoded, ".input_scale": torch.ones(())}.items()
        }
        yield named, torch.cat([worth for _, worth in pieces])


def _fused(encoded: list[Encoded]) -> Tensors:
    parts = [part for part, _ in encoded]
    return {name: torch.stack([part[name] for part in parts]) for name in parts[0] if not name.endswith("_shape")}


def _random_blocks(random: np.random.Generator, quant: Any, tensor: torch.Tensor) -> np.ndarray:
    """Returns blocks of random codes whose scales make weights of the usual size."""
    n_weights, n_bytes = gguf.GGML_QUANT_SIZES[quant]
    n_blocks = tensor.numel() // n_weights
    blocks = random.integers(0, 256, (n_blocks, n_bytes), dtype=np.uint8)
    largest = {"Q8_0": 127, "Q4_0": 8, "Q5_0": 16, "Q5_1": 31, "Q4_K": 15 * 63, "Q5_K": 31 * 63, "Q6_K": 32 * 127}[
        quant.name
    ]
    scale = random.uniform(0.2, 0.4, n_blocks) / tensor.shape[-1] ** 0.5 / largest
    at = {"Q6_K": 208}.get(quant.name, 0)
    blocks[:, at : at + 2] = scale.astype(np.float16).view(np.uint8).reshape(-1, 2)
    if quant.name in ("Q4_K", "Q5_K", "Q5_1"):
        offset = -scale * largest / 2 if quant.name == "Q5_1" else scale * largest / 126
        blocks[:, 2:4] = offset.astype(np.float16).view(np.uint8).reshape(-1, 2)
    return blocks.reshape(*tensor.shape[:-1], -1)


def _copy_configs(plain: Path, folder: Path, about: dict[str, Any] | None) -> None:
    folder.mkdir()
    for name in ("config.json", "generation_config.json"):
        if (plain / name).exists():
            shutil.copy(plain / name, folder)
    if about is not None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"quantization_config": about}))
