"""Training on a machine of its own: data in one file, checkpoints in pieces, a stop by the clock, a run from less."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from midspan_engine.__main__ import main
from midspan_engine.config import load_model_config
from midspan_engine.errors import CheckpointError, InputError
from midspan_engine.models.diffusion_gemma import DiffusionGemma
from midspan_engine.training.archive import unpack_archive, write_archive
from midspan_engine.training.job import Job
from midspan_engine.training.launch import train
from midspan_engine.training.run_folder import RunFolder, read_weights
from midspan_engine.training.shards import read_pieces, save_in_pieces
from midspan_engine.weights import load_weights
from packed_corpus import pack_own_sources
from test_training import start
from tiny_recipe import TINY, run_here, tiny_recipe

NAMES = ("tokenizer.json", "train.bin", "held.bin")


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack_own_sources(tmp_path_factory.mktemp("packed"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, packed: Path) -> Job:
    """A short run; tests that change its folder copy it."""
    folder = tmp_path_factory.mktemp("trained")
    job = Job(recipe=tiny_recipe(folder, steps=4), data=packed, run=folder / "run", is_compiled=False)
    run_here(job)
    return job


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory, packed: Path) -> Path:
    """The same with few tokens, which are compressed in no time."""
    folder = tmp_path_factory.mktemp("short")
    for name in NAMES:
        (folder / name).write_bytes((packed / name).read_bytes()[:40_000])
    return folder


def test_packed_data_come_back_from_their_archive(tmp_path: Path, short: Path) -> None:
    n_tokens = write_archive({name: short / name for name in NAMES}, tmp_path / "data")
    unpack_archive(tmp_path / "data", tmp_path / "unpacked")
    assert all((tmp_path / "unpacked" / name).read_bytes() == (short / name).read_bytes() for name in NAMES)
    assert n_tokens == (short / "train.bin").stat().st_size // 2
    assert sorted(path.name for path in (tmp_path / "unpacked").iterdir()) == sorted(NAMES)


def test_an_archive_is_never_larger_than_allowed_and_then_holds_the_first_tokens(tmp_path: Path, short: Path) -> None:
    files = {name: short / name for name in NAMES}
    write_archive(files, tmp_path / "all")
    limit = int((tmp_path / "all").stat().st_size * 0.7)
    n_tokens = write_archive(files, tmp_path / "some", max_bytes=limit)
    assert (tmp_path / "some").stat().st_size <= limit
    unpack_archive(tmp_path / "some", tmp_path / "unpacked")
    kept = np.fromfile(tmp_path / "unpacked" / "train.bin", dtype="<u2")
    whole = np.fromfile(short / "train.bin", dtype="<u2")
    assert 0 < len(kept) == n_tokens < len(whole)
    assert np.array_equal(kept, whole[:n_tokens])
    with pytest.raises(InputError, match="held-out split alone"):
        write_archive(files, tmp_path / "none", max_bytes=1000)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all", "some", "unpacked"]


def test_a_damaged_archive_is_refused(tmp_path: Path, short: Path) -> None:
    write_archive({name: short / name for name in NAMES}, tmp_path / "data")
    content = (tmp_path / "data").read_bytes()
    for damaged in (content[: len(content) // 2], b"no archive", content[:2000] + bytes(2000) + content[4000:]):
        (tmp_path / "data").write_bytes(damaged)
        with pytest.raises(InputError, match="midspan train pack"):
            unpack_archive(tmp_path / "data", tmp_path / "unpacked")


def test_a_checkpoint_in_pieces_is_loaded_like_a_whole_one(tmp_path: Path, trained: Job) -> None:
    folder = RunFolder(trained.run)
    config = load_model_config(folder.checkpoint)
    whole = load_weights(folder.checkpoint, config, torch.float32)
    target = RunFolder(tmp_path)
    target.write_configs(trained.recipe, trained.data / "tokenizer.json")
    save_in_pieces(dict(whole.named_parameters()), target.checkpoint, torch.float32, piece_bytes=200_000)
    pieces = sorted(target.checkpoint.glob("*.safetensors"))
    assert len(pieces) > 2
    assert all(piece.stat().st_size <= 200_000 for piece in pieces)
    again = load_weights(target.checkpoint, config, torch.float32)
    for (name, one), other in zip(whole.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other), name
    pieces[1].unlink()
    with pytest.raises(CheckpointError):
        read_pieces(target.checkpoint)


def test_a_run_of_which_only_the_checkpoint_is_left_goes_on_and_warms_up_again(tmp_path: Path, trained: Job) -> None:
    folder, job = RunFolder(tmp_path / "run"), msgspec.structs.replace(trained, run=tmp_path / "run")
    folder.checkpoint.mkdir(parents=True)
    for kept in (*trained.run.glob("checkpoint/*"), trained.run / "progress.json"):
        (folder.path / kept.relative_to(trained.run)).write_bytes(kept.read_bytes())
    assert not folder.has_state
    assert folder.states() == []
    model = DiffusionGemma(load_model_config(folder.checkpoint))
    average = folder.load_weights(model)
    shipped = read_weights(folder.checkpoint, model)
    assert all(torch.equal(average[name], tensor.float()) for name, tensor in shipped.items())

    more = msgspec.structs.replace(
        job.recipe, schedule=msgspec.structs.replace(job.recipe.schedule, steps=6, warmup_steps=10**9)
    )
    run_here(msgspec.structs.replace(job, recipe=more))
    assert folder.progress().step == 6
    after = load_file(folder.path / "weights.safetensors")
    before = read_pieces(folder.checkpoint.parent / "checkpoint")
    assert before.keys() == after.keys()
    moved = max(float((after[name] - tensor.float()).abs().max()) for name, tensor in before.items())
    assert moved < 0.01, "so early in its warm-up it hardly moves"


def test_a_run_stops_by_itself_when_its_time_is_up_and_keeps_what_is_done(tmp_path: Path, packed: Path) -> None:
    recipe = tiny_recipe(tmp_path, steps=0, minutes=1000.0)
    job = Job(recipe=recipe, data=packed, run=tmp_path / "run", is_compiled=False, stop_at=time.monotonic() + 1.0)
    folder = run_here(job)
    stopped = folder.progress()
    assert 0 < stopped.seconds < 60_000
    assert folder.has_state
    brief = msgspec.structs.replace(recipe, schedule=msgspec.structs.replace(recipe.schedule, minutes=0.001))
    run_here(msgspec.structs.replace(job, recipe=brief, stop_at=None))
    assert folder.progress().step == stopped.step, "the time that was trained already counts"


@pytest.mark.slow
def test_a_device_is_fed_from_a_carried_file_by_processes_of_its_own(tmp_path: Path, packed: Path) -> None:
    recipe, data = tiny_recipe(tmp_path, steps=6), tmp_path / "data"
    write_archive({name: packed / name for name in NAMES}, tmp_path / "carried")
    unpack_archive(tmp_path / "carried", data)
    job = Job(recipe=recipe, data=data, run=tmp_path / "run", is_compiled=False, device="cpu", n_feeders=2)
    assert train(job, 1)
    progress = RunFolder(job.run).progress()
    assert progress.step == 6
    assert progress.has_canvases, "rows came first, canvases after"


@pytest.mark.slow
def test_a_carried_file_trains_where_little_is_installed(tmp_path: Path, packed: Path) -> None:
    write_archive({name: packed / name for name in NAMES}, tmp_path / "carried")
    recipe = tmp_path / "tiny.toml"
    recipe.write_text(TINY)
    absent = ("lsprotocol", "platformdirs", "pygls", "transformers", "matplotlib", "gguf", "xllamacpp")
    block = f"import sys; sys.modules.update(dict.fromkeys({absent!r})); "
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(block)
    run = start(recipe, tmp_path / "carried", tmp_path / "run", "--eager", "--steps", "2", beside=tmp_path / "site")
    said = run.communicate(timeout=300)[0]
    assert run.returncode == 0, said
    assert (tmp_path / "run" / "checkpoint" / "model.safetensors").exists()


def test_the_command_that_packs_says_what_it_wrote(tmp_path: Path, short: Path) -> None:
    assert main(["train", "pack", str(tmp_path / "carried"), "--data", str(short)]) == 0
    unpack_archive(tmp_path / "carried", tmp_path / "unpacked")
    assert (tmp_path / "unpacked" / "train.bin").exists()
