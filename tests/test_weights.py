"""Loading is strict: a folder gives exactly the model that it describes, or a message that says what is wrong."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from midspan_engine.config import load_model_config
from midspan_engine.errors import CheckpointError, EngineError
from midspan_engine.formats.tensor_file import load_tensors, save_tensors
from midspan_engine.models.checkpoint_names import checkpoint_name
from midspan_engine.models.diffusion_gemma import DiffusionGemma
from midspan_engine.training.shards import save_named
from midspan_engine.weights import load_weights
from oracle import Pair, Shape, build_pair

Tensors = dict[str, torch.Tensor]
ANY_NORM = "model.decoder.layers.0.input_layernorm.weight"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return build_pair(tmp_path_factory.mktemp("checkpoint"), Shape(layers="sf", experts=4))


@pytest.fixture
def folder(pair: Pair, tmp_path: Path) -> Path:
    """A copy of the checkpoint that a test may spoil."""
    return Path(shutil.copytree(pair.folder, tmp_path / "checkpoint"))


def load(folder: Path, dtype: torch.dtype = torch.float32) -> DiffusionGemma:
    return load_weights(folder, load_model_config(folder), dtype)


def rewrite(folder: Path, change: Callable[[Tensors], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def shard(folder: Path, n_shards: int = 3) -> list[Path]:
    """Replaces the single file by shards and an index, as large checkpoints come."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    paths = [folder / f"model-{i + 1:05}-of-{n_shards:05}.safetensors" for i in range(n_shards)]
    weight_map = {}
    for i, path in enumerate(paths):
        part = {name: tensors[name] for name in sorted(tensors)[i::n_shards]}
        save_file(part, path, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, path.name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return paths


def refused(folder: Path, *words: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        load(folder)
    for word in words:
        assert word in str(caught.value)
    assert re.search(r": (use|give|download|its config\.json belongs)", str(caught.value)), "says what to do next"


def same_parameters(one: DiffusionGemma, other: DiffusionGemma) -> bool:
    others = dict(other.named_parameters())
    return all(torch.equal(p, others[name]) for name, p in one.named_parameters())


def test_every_parameter_comes_from_the_file(pair: Pair) -> None:
    stored = load_file(pair.folder / "model.safetensors")
    parameters = dict(pair.own.named_parameters())
    for name, parameter in parameters.items():
        assert parameter.device.type == "cpu"
        assert torch.equal(parameter, stored[checkpoint_name(name)]), name
    left = stored.keys() - {checkpoint_name(name) for name in parameters}
    assert left, "the oracle's checkpoints hold a vision tower"
    assert all(name.startswith(("model.encoder.vision_tower.", "model.encoder.embed_vision.")) for name in left)
    assert not pair.own.training


def test_loaded_parameters_do_not_depend_on_the_file_any_more(folder: Path, pair: Pair) -> None:
    model = load(folder)
    (folder / "model.safetensors").write_bytes(bytes((folder / "model.safetensors").stat().st_size))
    assert same_parameters(model, pair.own)


def test_shards_give_the_same_model_as_one_file(folder: Path, pair: Pair) -> None:
    shard(folder)
    assert same_parameters(load(folder), pair.own)


def test_what_a_text_model_does_not_need_is_skipped(folder: Path, pair: Pair) -> None:
    rewrite(
        folder,
        lambda tensors: tensors.update(
            {
                "lm_head.weight": torch.ones(2, 2),
                "model.decoder.rotary_emb.sliding_attention_inv_freq": torch.ones(4),
                "model.encoder.vision_tower.encoder.layers.0.mlp.up_proj.input_max": torch.ones(1),
                "model.encoder.vision_tower.anything.weight_packed": torch.ones(2, dtype=torch.int32),
            }
        ),
    )
    assert same_parameters(load(folder), pair.own)


def test_weights_are_converted_to_the_wanted_type(folder: Path, pair: Pair) -> None:
    model = load(folder, torch.bfloat16)
    for (name, half), whole in zip(model.named_parameters(), pair.own.parameters(), strict=True):
        assert torch.equal(half, whole.bfloat16()), name


def test_saved_weights_load_again_here_and_in_transformers(folder: Path, pair: Pair) -> None:
    model = load(folder)
    with torch.no_grad():
        model.encoder_layer_scalars[0].fill_(0.25)
        model.layers[0].layer_scalar.fill_(0.75)
    save_named(dict(model.named_parameters()), folder / "model.safetensors", torch.float32)
    assert same_parameters(load(folder), model)
    loaded = type(pair.reference).from_pretrained(folder, local_files_only=True)
    assert loaded.model.encoder.language_model.layers[0].layer_scalar.item() == 0.25
    assert loaded.model.decoder.layers[0].layer_scalar.item() == 0.75
    assert [path.name for path in folder.glob("*.partial")] == []
    assert (folder / "model.safetensors").stat().st_mode & 0o044 == 0o044, "others may read it"


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(EngineError, match="cannot be written"):
        save_tensors({"a": torch.ones(1)}, tmp_path / "taken" / "below.safetensors")


def test_a_write_that_fails_is_told_and_leaves_the_older_file_whole(tmp_path: Path) -> None:
    target = tmp_path / "state.safetensors"
    save_tensors({"a": torch.ones(1)}, target)
    (tmp_path / "state.safetensors.partial").mkdir()
    with pytest.raises(EngineError, match="free some space"):
        save_tensors({"a": torch.zeros(1)}, target)
    assert load_tensors(target)["a"].item() == 1.0


def test_missing_tensors_are_named_and_counted(folder: Path) -> None:
    def drop_the_second_layer(tensors: Tensors) -> None:
        for name in [name for name in tensors if name.startswith("model.decoder.layers.1.")]:
            del tensors[name]

    rewrite(folder, drop_the_second_layer)
    refused(folder, "lacks 21 of 51 tensors", "model.decoder.layers.1.", "and 18 more")


def test_a_missing_encoder_scalar_is_not_taken_from_the_decoder(folder: Path) -> None:
    name = "model.encoder.language_model.layers.1.layer_scalar"
    rewrite(folder, lambda tensors: tensors.pop(name))
    refused(folder, "lacks 1 of", name)


def test_extra_tensors_are_refused(folder: Path) -> None:
    rewrite(folder, lambda tensors: tensors.update({"model.decoder.layers.0.self_attn.q_proj.bias": torch.ones(3)}))
    refused(folder, "1 tensors", "q_proj.bias")


def test_mis_shaped_tensors_are_refused_with_both_shapes(folder: Path) -> None:
    rewrite(folder, lambda tensors: tensors.update({ANY_NORM: torch.ones(65)}))
    refused(folder, ANY_NORM, "[65]", "[64]")


@pytest.mark.parametrize("share", [0.0, 0.00001, 0.5, 0.999])
def test_a_truncated_file_is_refused(folder: Path, share: float) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    refused(folder, "model.safetensors", "truncated")


def test_a_truncated_shard_is_refused_by_name(folder: Path) -> None:
    path = shard(folder)[1]
    path.write_bytes(path.read_bytes()[:-1])
    refused(folder, path.name, "truncated")


def test_a_file_of_something_else_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"version 1\nsize 51647562456\n" * 100)
    refused(folder, "no safetensors file")


def test_missing_shards_are_named(folder: Path) -> None:
    path = shard(folder)[2]
    path.unlink()
    refused(folder, "lacks 1 of 3 shards", path.name)


def test_a_tensor_in_two_shards_is_refused(folder: Path) -> None:
    paths = shard(folder)
    save_file(load_file(paths[0]) | load_file(paths[1]), paths[1])
    refused(folder, paths[0].name, paths[1].name)


def test_an_index_that_is_no_json_is_refused(folder: Path) -> None:
    shard(folder)
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a"')
    refused(folder, "model.safetensors.index.json is not usable")


def test_an_index_that_leads_out_of_its_folder_is_refused(folder: Path) -> None:
    shard(folder)
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../other/model.safetensors"}}')
    refused(folder, "../other/model.safetensors")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth"])
def test_pickled_weights_are_never_read(folder: Path, name: str) -> None:
    (folder / "model.safetensors").rename(folder / name)
    refused(folder, name, "only safetensors are loaded")


def test_a_folder_without_weights_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    refused(folder, "neither model.safetensors nor")


@pytest.mark.parametrize(
    ("name", "dtype", "scheme"),
    [
        ("experts.0.gate_proj.weight_g_idx", torch.int32, "order of activations"),
        ("experts.0.gate_proj.pre_quant_scale", torch.float32, "AWQ"),
        ("self_attn.q_proj.weight_scale_inv", torch.float32, "block-wise FP8"),
        ("self_attn.q_proj.qweight", torch.int32, "GPTQ or AWQ"),
        ("self_attn.q_proj.scales", torch.float16, "MLX"),
        ("self_attn.q_proj.weight.absmax", torch.float32, "bitsandbytes"),
        ("experts.gate_up_proj_blocks", torch.uint8, "MXFP4"),
    ],
)
def test_foreign_quantised_tensors_are_refused_by_scheme(
    folder: Path, name: str, dtype: torch.dtype, scheme: str
) -> None:
    stored = f"model.decoder.layers.0.{name}"
    rewrite(folder, lambda tensors: tensors.update({stored: torch.ones(4, dtype=dtype)}))
    refused(folder, scheme, stored, "use the bf16 checkpoint")


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.uint8, torch.int32])
def test_types_that_are_no_plain_floats_are_refused(folder: Path, dtype: torch.dtype) -> None:
    name = "model.decoder.layers.0.experts.down_proj"
    rewrite(folder, lambda tensors: tensors.update({name: tensors[name].to(dtype)}))
    refused(folder, name, "no plain floats")


def test_a_quantisation_file_beside_the_weights_is_believed(folder: Path) -> None:
    (folder / "hf_quant_config.json").write_text('{"quantization": {"quant_algo": "W4A8_AWQ", "group_size": 128}}')
    refused(folder, "modelopt W4A8_AWQ", "use the bf16 checkpoint")


@pytest.mark.parametrize(
    ("about", "scheme"),
    [
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes"),
        ({"quant_method": "modelopt", "quant_algo": "W4A16_AWQ"}, "modelopt W4A16_AWQ"),
        ({"quant_method": "compressed-tensors", "format": "marlin-24"}, "the format marlin-24"),
        (
            {
                "quant_method": "compressed-tensors",
                "format": "mixed-precision",
                "config_groups": {"a": {"format": "x"}},
            },
            "the format x",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "format": "pack-quantized",
                "config_groups": {"a": {"weights": {"num_bits": 3}}},
            },
            "3 bits",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "format": "float-quantized",
                "config_groups": {"a": {"weights": {"num_bits": 8, "strategy": "block"}}},
            },
            "scales of blocks",
        ),
        (
            {"quant_method": "compressed-tensors", "format": "pack-quantized", "transform_config": {"a": 1}},
            "transformed activations",
        ),
    ],
)
def test_foreign_quantisation_in_the_config_is_refused_by_name(
    folder: Path, about: dict[str, object], scheme: str
) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": about}))
    refused(folder, scheme, "use the bf16 checkpoint")


@pytest.mark.parametrize(
    "about",
    [
        {"quant_method": "modelopt", "quant_algo": ["NVFP4"]},
        {"quant_method": ["modelopt"]},
        {"quant_method": "compressed-tensors", "format": ["pack-quantized"]},
        {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": [1]},
        {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"a": "b"}},
        {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"a": {"weights": "b"}}},
        {"quant_method": "compressed-tensors", "format": "pack-quantized", "sparsity_config": "dense"},
        "nvfp4",
    ],
)
def test_a_quantisation_config_of_another_form_is_refused(folder: Path, about: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": about}))
    refused(folder, "config.json is not usable", "download it again")


def test_an_mlx_checkpoint_is_refused_by_name(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization": {"bits": 4, "group_size": 64}}))
    refused(folder, "MLX")


def test_both_spellings_of_the_full_layers_give_the_same_shape(folder: Path, tmp_path: Path) -> None:
    build_pair(tmp_path / "respelled", Shape(layers="sf", experts=4, spelling="global"))
    one = json.loads((folder / "config.json").read_text())["text_config"]
    other = json.loads((tmp_path / "respelled" / "config.json").read_text())["text_config"]
    assert "per_layer_config" in one.keys() - other.keys()
    assert "global_head_dim" in other.keys() - one.keys()
    assert load_model_config(folder) == load_model_config(tmp_path / "respelled")
