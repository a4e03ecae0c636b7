"""Quantised checkpoints run as the plain checkpoint that they stand for, or are refused for a reason."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from midspan_engine.config import load_model_config
from midspan_engine.errors import CheckpointError
from midspan_engine.formats.safetensors_source import SafetensorsSource
from midspan_engine.kv import KVCache
from midspan_engine.models.checkpoint_names import checkpoint_name
from midspan_engine.models.diffusion_gemma import DiffusionGemma
from midspan_engine.models.packed_matrix import PackedMatrix
from midspan_engine.weights import load_weights
from midspan_kernels.packed import dequantise

pytest.importorskip("compressed_tensors")
pytest.importorskip("gguf")

from quantised_checkpoint import (
    Encode,
    Tensors,
    base,
    compressed,
    modelopt_fp4,
    write_gguf,
    write_plain,
    write_quantised,
)

MODELOPT = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
CHANNEL = {"num_bits": 8, "strategy": "channel", "symmetric": True}
GROUP = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}


def of_compressed(kind: str, **args: Any) -> tuple[Encode, dict[str, Any]]:
    weights = {key: args[key] for key in ("num_bits", "strategy")}
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    return compressed(kind, **args), {"quant_method": "compressed-tensors", "format": kind, "config_groups": groups}


FORMATS: dict[str, tuple[Encode, dict[str, Any]]] = {
    "modelopt NVFP4": (modelopt_fp4, MODELOPT),
    "int4": of_compressed("pack-quantized", **GROUP, symmetric=True),
    "int4 with zero points": of_compressed("pack-quantized", **GROUP, symmetric=False),
    "packed int8": of_compressed("pack-quantized", **CHANNEL, type="int"),
    "NVFP4": of_compressed(
        "nvfp4-pack-quantized", num_bits=4, type="float", strategy="tensor_group", group_size=16, symmetric=True
    ),
    "FP8 rows": of_compressed("float-quantized", **CHANNEL, type="float"),
    "FP8 tensors": of_compressed("naive-quantized", num_bits=8, type="float", strategy="tensor", symmetric=True),
    "INT8": of_compressed("int-quantized", **CHANNEL, type="int"),
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Tensors]:
    folder = tmp_path_factory.mktemp("plain")
    return folder, base(folder)


def load(folder: Path, dtype: torch.dtype = torch.float32) -> DiffusionGemma:
    return load_weights(folder, load_model_config(folder), dtype).requires_grad_(False)


def opened(folder: Path) -> SafetensorsSource:
    """Reads a folder's headers alone."""
    with torch.device("meta"):
        names = DiffusionGemma(load_model_config(folder)).named_parameters()
        wanted = {checkpoint_name(name): parameter.shape for name, parameter in names}
    return SafetensorsSource(folder, load_model_config(folder).n_experts, wanted)


def answers(model: DiffusionGemma) -> torch.Tensor:
    """Returns a canvas' logits behind a prompt; every weight has a part in them."""
    cache = KVCache(model.config.n_layers)
    model.encode(torch.arange(20)[None], cache)
    canvas = torch.arange(100, 112)[None]
    soft = model.soften(model.logits(model.decode(canvas, cache)))
    return model.logits(model.decode(canvas, cache, soft))


def is_packed(name: str, tensor: torch.Tensor) -> bool:
    return tensor.dim() > 1 and "embed" not in name and "router" not in name


def packed_names(model: DiffusionGemma) -> set[str]:
    return {name for name, module in model.named_modules() if isinstance(module, PackedMatrix)}


@pytest.mark.parametrize("linears", [False, True], ids=["experts", "all linears"])
@pytest.mark.parametrize("name", FORMATS)
def test_a_quantised_checkpoint_runs_as_the_plain_one_that_it_stands_for(
    plain: tuple[Path, Tensors], tmp_path: Path, name: str, linears: bool
) -> None:
    encode, about = FORMATS[name]
    worth = write_quantised(tmp_path / "packed", *plain, encode, about, split=True, linears=linears)
    write_plain(tmp_path / "worth", plain[0], worth)
    model = load(tmp_path / "packed")
    assert "layers.0.experts.gate_up_proj" in packed_names(model)
    assert ("layers.0.self_attn.q_proj" in packed_names(model)) == linears
    # scales are multiplied in another order than by the packages
    torch.testing.assert_close(answers(model), answers(load(tmp_path / "worth")), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["int4", "FP8 rows", "INT8", "NVFP4", "packed int8"])
def test_fused_experts_may_be_quantised_too(plain: tuple[Path, Tensors], tmp_path: Path, name: str) -> None:
    encode, about = FORMATS[name]
    worth = write_quantised(tmp_path / "packed", *plain, encode, about, split=False, linears=False)
    write_plain(tmp_path / "worth", plain[0], worth)
    torch.testing.assert_close(
        answers(load(tmp_path / "packed")), answers(load(tmp_path / "worth")), rtol=1e-4, atol=1e-4
    )


def test_plain_experts_may_be_split(plain: tuple[Path, Tensors], tmp_path: Path) -> None:
    write_quantised(tmp_path / "split", *plain, lambda w: ({"": w}, w), {**MODELOPT}, split=True, linears=False)
    assert torch.equal(answers(load(tmp_path / "split")), answers(load(plain[0])))


@pytest.mark.parametrize(
    ("kind", "narrow"),
    [("Q8_0", "Q8_0"), ("Q4_K", "Q5_0"), ("Q6_K", "Q8_0"), ("Q5_K", "Q5_1"), ("Q8_0", "Q4_0")],
)
def test_a_gguf_file_runs_as_the_plain_checkpoint_that_it_stands_for(
    plain: tuple[Path, Tensors], tmp_path: Path, kind: str, narrow: str
) -> None:
    worth = write_gguf(tmp_path / "packed", *plain, kind, narrow)
    write_plain(tmp_path / "worth", plain[0], worth)
    model, reference = load(tmp_path / "packed"), load(tmp_path / "worth")
    assert len(packed_names(model)) == 2 * 9 - 1 + 3
    expected = reference.state_dict()
    for name in packed_names(model):
        matrix = model.get_submodule(name)
        assert isinstance(matrix, PackedMatrix)
        weights = dequantise(matrix.packed, torch.float32)
        plain_weights = expected[name if ".experts." in name else f"{name}.weight"]
        span = plain_weights.unflatten(-1, (matrix.packed.scales.shape[-1], -1)).abs().amax(-1, keepdim=True)
        error = (weights - plain_weights).view(*span.shape[:-1], -1).abs()
        assert (error <= (0 if matrix.packed.shape[-1] % 256 or kind == "Q8_0" else 2**-9) * span).all(), name
    exactly = {"rtol": 0, "atol": 0} if kind == "Q8_0" else {"rtol": 0, "atol": 0.02}
    torch.testing.assert_close(answers(model), answers(reference), **exactly)


def test_packed_weights_take_no_more_memory_than_their_files(plain: tuple[Path, Tensors], tmp_path: Path) -> None:
    encode, about = FORMATS["int4"]
    write_quantised(tmp_path / "packed", *plain, encode, about, split=True, linears=True)
    model = load(tmp_path / "packed", torch.bfloat16)
    held = sum(buffer.nbytes for buffer in model.buffers())
    n_weights = sum(tensor.numel() for name, tensor in plain[1].items() if is_packed(name, tensor))
    assert held == n_weights * (0.5 + 4 / 32)  # the scales of this checkpoint are fp32


def test_a_lonely_scale_is_refused(plain: tuple[Path, Tensors], tmp_path: Path) -> None:
    encode, about = FORMATS["int4"]
    write_quantised(tmp_path / "packed", *plain, encode, about, split=True, linears=False)
    file = tmp_path / "packed" / "model.safetensors"
    tensors = load_file(file)
    del tensors["model.decoder.layers.0.experts.2.up_proj.weight_packed"]
    save_file(tensors, file)
    with pytest.raises(CheckpointError, match=r"experts\.2\.up_proj"):
        load(tmp_path / "packed")


def test_scales_of_blocks_are_refused(plain: tuple[Path, Tensors], tmp_path: Path) -> None:
    encode, about = FORMATS["FP8 rows"]
    write_quantised(tmp_path / "packed", *plain, encode, about, split=True, linears=True)
    file = tmp_path / "packed" / "model.safetensors"
    tensors = load_file(file)
    tensors["model.decoder.layers.0.mlp.up_proj.weight_scale"] = torch.ones(2, 2)
    save_file(tensors, file)
    with pytest.raises(CheckpointError, match=r"mlp\.up_proj.*no scales of rows.*use the bf16 checkpoint"):
        load(tmp_path / "packed")


@pytest.mark.parametrize("split", [True, False], ids=["split", "fused"])
@pytest.mark.parametrize(
    ("name", "ending", "change"),
    [
        ("NVFP4", "_scale", lambda t: torch.cat([t.float(), t.float()[..., :8, :]], -2).to(t.dtype)),
        ("NVFP4", "_scale", lambda t: t.float()[..., :1].to(t.dtype)),
        ("NVFP4", "_scale", lambda t: t.float().repeat_interleave(2, -1).to(t.dtype)),
        ("NVFP4", "_scale", lambda t: t.bfloat16()),
        ("NVFP4", "_global_scale", lambda t: t.new_ones(*t.shape[:-1], 3)),
        ("NVFP4", "_global_scale", lambda t: t.new_ones(0)),
        ("modelopt NVFP4", "_scale_2", lambda t: t.new_ones(7)),
        ("INT8", "_scale", lambda t: t[..., None]),
        ("INT8", "_scale", lambda t: t.int()),
        ("INT8", "_scale", lambda t: t[..., :0]),
        ("FP8 rows", "_scale", lambda t: t[..., 1:, :]),
        ("int4", "_scale", lambda t: t[..., :0]),
        ("int4 with zero points", "_zero_point", lambda t: t[..., 0]),
        ("int4 with zero points", "_zero_point", lambda t: t.float()),
        ("int4 with zero points", "_zero_point", lambda t: t[..., :-1, :]),
    ],
)
def test_scales_that_do_not_fit_are_refused_before_anything_is_read(
    plain: tuple[Path, Tensors],
    tmp_path: Path,
    name: str,
    ending: str,
    change: Callable[[torch.Tensor], torch.Tensor],
    split: bool,
) -> None:
    encode, about = FORMATS[name]
    write_quantised(tmp_path / "packed", *plain, encode, about, split=split, linears=False)
    file = tmp_path / "packed" / "model.safetensors"
    tensors = load_file(file)
    key = next(key for key in tensors if re.search(rf"experts\..*(proj|weight){ending}$", key))
    save_file({**tensors, key: change(tensors[key]).contiguous()}, file)
    with pytest.raises(CheckpointError, match=rf"has {ending} .*use the bf16 checkpoint"):
        opened(tmp_path / "packed")


def test_codes_of_a_vector_are_refused(plain: tuple[Path, Tensors], tmp_path: Path) -> None:
    write_quantised(tmp_path / "packed", *plain, *FORMATS["INT8"], split=True, linears=True)
    file = tmp_path / "packed" / "model.safetensors"
    tensors = load_file(file)
    norm = next(key for key in tensors if key.endswith("layers.0.input_layernorm.weight"))
    save_file({**tensors, norm: tensors[norm].to(torch.int8), norm + "_scale": torch.ones(1)}, file)
    with pytest.raises(CheckpointError, match=r"input_layernorm.* no matrix's"):
        opened(tmp_path / "packed")


@pytest.mark.parametrize("ending", ["_scale", ""])
def test_experts_that_are_not_packed_alike_are_refused(
    plain: tuple[Path, Tensors], tmp_path: Path, ending: str
) -> None:
    write_quantised(tmp_path / "packed", *plain, *FORMATS["INT8"], split=True, linears=False)
    file = tmp_path / "packed" / "model.safetensors"
    tensors = load_file(file)
    key = "model.decoder.layers.0.experts.2.up_proj.weight"
    if ending:
        tensors[key + ending] = torch.ones(len(tensors[key]), 2)
    else:
        tensors[key] = tensors[key].bfloat16()
        del tensors[key + "_scale"]
    save_file(tensors, file)
    with pytest.raises(CheckpointError, match=r"experts\.2\.up_proj.* is not packed as "):
        opened(tmp_path / "packed")


def test_a_gguf_file_in_another_mixture_is_refused(plain: tuple[Path, Tensors], tmp_path: Path) -> None:
    import gguf

    write_gguf(tmp_path / "packed", *plain, "Q8_0", "Q8_0")
    file = tmp_path / "packed" / "model.gguf"
    reader = gguf.GGUFReader(file, "r+")
    next(t for t in reader.tensors if t.name == "output_norm.weight").field.parts[-2][0] = (
        gguf.GGMLQuantizationType.IQ4_NL
    )
    reader.data.flush()
    with pytest.raises(CheckpointError, match=r"output_norm\.weight \(IQ4_NL\).*Q4_K_M"):
        load(tmp_path / "packed")


def test_a_truncated_gguf_file_is_refused(plain: tuple[Path, Tensors], tmp_path: Path) -> None:
    write_gguf(tmp_path / "packed", *plain, "Q8_0", "Q8_0")
    file = tmp_path / "packed" / "model.gguf"
    for share in (0.0001, 0.5, 0.999):
        file.write_bytes(file.read_bytes()[: int(file.stat().st_size * share)])
        with pytest.raises(CheckpointError, match="truncated or no GGUF file"):
            load(tmp_path / "packed")


def test_a_gguf_file_alone_says_what_it_lacks(plain: tuple[Path, Tensors], tmp_path: Path) -> None:
    write_gguf(tmp_path / "packed", *plain, "Q8_0", "Q8_0")
    (tmp_path / "packed" / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"config\.json.*beside it"):
        load(tmp_path / "packed")


def test_a_gguf_file_without_the_package_says_what_to_install(
    plain: tuple[Path, Tensors], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_gguf(tmp_path / "packed", *plain, "Q8_0", "Q8_0")
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(CheckpointError, match=r"pip install 'midspan\[gguf\]'"):
        load(tmp_path / "packed")


def test_several_gguf_files_are_refused(plain: tuple[Path, Tensors], tmp_path: Path) -> None:
    write_gguf(tmp_path / "packed", *plain, "Q8_0", "Q8_0")
    (tmp_path / "packed" / "other.gguf").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"model\.gguf, other\.gguf.*one"):
        load(tmp_path / "packed")


def test_modelopts_own_file_is_read_too(plain: tuple[Path, Tensors], tmp_path: Path) -> None:
    write_quantised(tmp_path / "packed", *plain, modelopt_fp4, MODELOPT, split=True, linears=False)
    about = {"quantization": {"quant_algo": "NVFP4", "group_size": 16, "kv_cache_quant_algo": "FP8"}}
    (tmp_path / "packed" / "hf_quant_config.json").write_text(json.dumps(about))
    assert packed_names(load(tmp_path / "packed"))
