"""Experts that are packed while a plain checkpoint is loaded: what that gives, what is kept, what it takes."""

from __future__ import annotations

import json
import logging
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest
import torch
from safetensors.torch import load_file, save_file

from midspan_engine.config import load_model_config
from midspan_engine.kv import KVCache
from midspan_engine.models.checkpoint_names import checkpoint_name
from midspan_engine.models.diffusion_gemma import DiffusionGemma
from midspan_engine.models.packed_matrix import PackedMatrix
from midspan_engine.quantised_cache import QuantisedCache
from midspan_engine.weights import load_weights
from midspan_kernels.packed import dequantise, quantise
from oracle import Shape, write_checkpoint

EXPERTS = ".experts."
SHAPE = Shape(layers="sf", experts=4, expert_width=32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "checkpoint", SHAPE)
    return tmp_path / "checkpoint"


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "kept"


def load(folder: Path, kept: Path, wish: str = "4bit") -> DiffusionGemma:
    config = load_model_config(folder)
    return load_weights(folder, config, torch.float32, wish=wish, kept_in=kept).requires_grad_(False)


def weights_of(model: DiffusionGemma) -> list[torch.Tensor]:
    packed = (module.packed for module in model.modules() if isinstance(module, PackedMatrix))
    return [dequantise(matrix, torch.float32) for matrix in packed]


def same(one: DiffusionGemma, other: DiffusionGemma) -> bool:
    return all(torch.equal(a, b) for a, b in zip(weights_of(one), weights_of(other), strict=True))


def damage_experts(folder: Path) -> None:
    """Fills the experts with other numbers, without a trace in size and time of the file."""
    file = folder / "model.safetensors"
    before = file.stat()
    tensors = load_file(file)
    save_file({name: t + 1 if EXPERTS in name else t for name, t in tensors.items()}, file, metadata={"format": "pt"})
    assert file.stat().st_size == before.st_size
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize(("wish", "kind"), [("4bit", "int4"), ("8bit", "int8")])
def test_packed_experts_answer_as_their_unpacked_weights(folder: Path, kept: Path, wish: str, kind: str) -> None:
    packed = load(folder, kept, wish)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    unpacked = {
        name: dequantise(quantise(tensor, kind), torch.float32) if EXPERTS in name else tensor
        for name, tensor in tensors.items()
    }
    save_file(unpacked, file, metadata={"format": "pt"})
    plain = load(folder, kept, "stored")
    assert len(weights_of(packed)) == 4
    assert not weights_of(plain)
    canvas = torch.arange(8)[None]
    hidden = [model.decode(canvas, KVCache(model.config.n_layers)) for model in (packed, plain)]
    assert torch.equal(*hidden)
    assert packed.n_weights == plain.n_weights == sum(p.numel() for p in plain.parameters())


def test_experts_are_packed_once(folder: Path, kept: Path) -> None:
    first = load(folder, kept)
    damage_experts(folder)
    assert same(load(folder, kept), first)


def test_a_changed_checkpoint_is_packed_again_in_the_place_of_the_old(folder: Path, kept: Path) -> None:
    first = load(folder, kept)
    files = sorted(kept.iterdir())
    write_checkpoint(folder, SHAPE, seed=1)
    second = load(folder, kept)
    assert not same(second, first)
    assert sorted(kept.iterdir()) == files
    assert same(load(folder, kept), second)


def test_a_loading_that_was_killed_goes_on_where_it_was(folder: Path, kept: Path) -> None:
    def end_halfway(share: float) -> None:
        if len(list(kept.glob("*.safetensors"))) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load_weights(folder, load_model_config(folder), torch.float32, end_halfway, wish="4bit", kept_in=kept)
    (kept / "model.decoder.layers.1.experts.down_proj.int4.safetensors.partial").write_bytes(b"half a tensor")
    done = {file: file.stat().st_mtime_ns for file in kept.glob("*.safetensors")}
    model = load(folder, kept)
    assert len(done) == 2
    assert all(file.stat().st_mtime_ns == time for file, time in done.items())
    assert len(list(kept.iterdir())) == 4
    assert same(model, load(folder, kept / "elsewhere"))


class Elsewhere(torch.Tensor):
    """A tensor as on an accelerator: the host sees its numbers when it is brought here, not before."""

    def cpu(self) -> torch.Tensor:  # type: ignore[override]
        return self.as_subclass(torch.Tensor)

    def numpy(self) -> NoReturn:  # type: ignore[override]
        raise TypeError("can't convert a tensor of another device to numpy")


def test_what_an_accelerator_packed_is_kept_too(kept: Path) -> None:
    packed = quantise(torch.randn(4, 64, generator=torch.Generator().manual_seed(0)), "int4")
    cache = QuantisedCache(kept, "int4")
    cache.save("experts", "source", packed.map(lambda tensor: tensor.as_subclass(Elsewhere)))
    found = cache.load("experts", "source")
    assert found is not None
    assert torch.equal(dequantise(found, torch.float32), dequantise(packed, torch.float32))


@pytest.mark.parametrize("at", [-1, 20, 4], ids=["contents", "header", "length"])
def test_a_damaged_kept_tensor_is_made_again(
    folder: Path, kept: Path, at: int, caplog: pytest.LogCaptureFixture
) -> None:
    first = load(folder, kept)
    file = sorted(kept.iterdir())[0]
    whole = file.read_bytes()
    data = bytearray(whole)
    data[at] ^= 0x55
    file.write_bytes(data)
    assert same(load(folder, kept), first)
    assert "made again" in caplog.text
    assert len(file.read_bytes()) == len(whole)
    caplog.clear()
    assert same(load(folder, kept), first)
    assert not caplog.text


def test_a_full_disk_ends_the_keeping_and_not_the_loading(
    folder: Path, kept: Path, caplog: pytest.LogCaptureFixture
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))  # writes fail as on a full disk
    try:
        with caplog.at_level(logging.WARNING):
            model = load(folder, kept)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert len(weights_of(model)) == 4
    assert caplog.text.count("free some space") == 1
    assert list(kept.iterdir()) == []


def test_a_disk_is_not_filled_to_the_brim(
    folder: Path, kept: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=2**28))
    assert len(weights_of(load(folder, kept))) == 4
    assert caplog.text.count("0.3 GB left: free some space") == 1
    assert list(kept.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_no_hindrance(folder: Path, kept: Path) -> None:
    kept.write_text("a file")
    assert len(weights_of(load(folder, kept))) == 4


def test_widths_that_no_group_divides_stay_plain(tmp_path: Path, kept: Path) -> None:
    write_checkpoint(tmp_path / "odd", Shape(layers="f", experts=2, expert_width=24))
    model = load(tmp_path / "odd", kept)
    assert isinstance(model.layers[0].experts.gate_up_proj, PackedMatrix)
    assert isinstance(model.layers[0].experts.down_proj, torch.nn.Parameter)


PEAK_OF_LOADING = """
import sys
from pathlib import Path
import torch
from midspan_engine.config import load_model_config
from midspan_engine.weights import load_weights

torch.set_num_threads(1)

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))

# The model itself is where it takes no memory, as that of a GPU takes none of the host's.
for folder in map(Path, sys.argv[1:]):
    config = load_model_config(folder)
    load_weights(folder, config, torch.bfloat16, wish="4bit", device=torch.device("meta"), kept_in=folder / "kept")
    print(peak())
"""


def write_large(folder: Path, n_layers: int) -> int:
    """Writes a checkpoint of 50 MB a layer, in shards of one layer; returns its size in MB."""
    config = json.loads((folder / "config.json").read_text())
    text = config["text_config"]
    text |= {"num_hidden_layers": n_layers, "num_experts": 16, "hidden_size": 512, "moe_intermediate_size": 1024}
    text["layer_types"] = ["sliding_attention"] * (n_layers - 1) + ["full_attention"]
    text.pop("per_layer_config", None)
    (folder / "config.json").write_text(json.dumps(config))
    with torch.device("meta"):
        model = DiffusionGemma(load_model_config(folder))
    (folder / "model.safetensors").unlink()
    shards: dict[str, dict[str, torch.Tensor]] = {}
    for name, parameter in model.named_parameters():
        stored = checkpoint_name(name)
        layer = stored.partition("layers.")[2].partition(".")[0] or "0"
        shards.setdefault(f"model-{layer}.safetensors", {})[stored] = torch.full(parameter.shape, 0.5).bfloat16()
    for name, tensors in shards.items():
        save_file(tensors, folder / name)
    weight_map = {name: shard for shard, tensors in shards.items() for name in tensors}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return sum(file.stat().st_size for file in folder.glob("*.safetensors")) // 2**20


@pytest.mark.slow
def test_the_memory_beside_the_model_does_not_grow_with_the_checkpoint(tmp_path: Path) -> None:
    folders, sizes = [], []
    for n_layers in (1, 5):
        folders.append(tmp_path / str(n_layers))
        write_checkpoint(folders[-1], Shape(layers="s" * (n_layers - 1) + "f", experts=2, spelling="global"))
        sizes.append(write_large(folders[-1], n_layers))
    assert sizes[1] - sizes[0] > 180
    done = subprocess.run(
        [sys.executable, "-c", PEAK_OF_LOADING, *map(str, folders)],
        capture_output=True,
        text=True,
        env={**os.environ, "MALLOC_ARENA_MAX": "1"},
    )
    assert done.returncode == 0, done.stderr
    small, large = map(float, done.stdout.split())
    assert large - small < 40, f"{large - small:.0f} MB more for a checkpoint of {sizes[1] - sizes[0]} MB more"
