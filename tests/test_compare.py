"""Recipes are compared after equal times, by losses that mean the same for all; one that fails stops no other."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import msgspec
import pytest
import torch

from midspan_engine.__main__ import main
from midspan_engine.config import load_model_config
from midspan_engine.formats.tensor_file import save_tensors
from midspan_engine.models.diffusion_gemma import DiffusionGemma
from midspan_engine.tokens import Tokens
from midspan_engine.training.compare import Comparison, Outcome, Plan, as_markdown, compare
from midspan_engine.training.examples import Batch
from midspan_engine.training.initial import initialise
from midspan_engine.training.job import Job, make_examples
from midspan_engine.training.measure import HeldOut, Loss, measure
from midspan_engine.training.recipe import Recipe
from midspan_engine.training.run_folder import RunFolder
from midspan_engine.training.shards import save_named
from packed_corpus import N_IDS, pack_own_sources
from tiny_recipe import TINY, tiny_recipe


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack_own_sources(tmp_path_factory.mktemp("packed"))


def untrained(recipe: Recipe, packed: Path, run: Path) -> Job:
    """Returns a job whose run has weights that know nothing: the embeddings are 0, so every token is as likely."""
    folder = RunFolder(run)
    folder.write_configs(recipe, packed / "tokenizer.json")
    model = DiffusionGemma(load_model_config(folder.checkpoint))
    initialise(model)
    torch.nn.init.zeros_(model.embed_tokens.weight)
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    save_named(weights, run / "weights.safetensors", torch.float32)
    save_tensors(weights, run / "average.safetensors")
    return Job(recipe=recipe, data=packed, run=run)


def test_who_knows_nothing_loses_the_same_by_every_measure(tmp_path: Path, packed: Path) -> None:
    recipe = tiny_recipe(tmp_path)
    longer = msgspec.structs.replace(recipe.data, row_tokens=200)
    shape = msgspec.structs.replace(recipe.shape, sliding_window=200)
    recipe = msgspec.structs.replace(recipe, data=longer, shape=shape)
    held = measure(untrained(recipe, packed, tmp_path / "run"), n_batches=2)
    for loss in (held.causal, held.quoted, held.canvas):
        assert loss.token == pytest.approx(math.log(N_IDS), rel=1e-3)
    # a token spells between two and four characters here; blanks and ends of gaps spell none
    assert 2 < held.causal.token / held.causal.character < 4
    assert held.canvas.character > held.causal.character


def drawn(job: Job, **infill: object) -> Batch:
    changed = msgspec.structs.replace(job.recipe.infill, **infill)
    asked = msgspec.structs.replace(job, recipe=msgspec.structs.replace(job.recipe, infill=changed))
    return make_examples(asked, Tokens.load(job.data / "tokenizer.json"), "held", 1).batch(4)


def test_hidden_slots_hold_the_noise_of_the_recipe_and_the_gaps_stay_the_same(tmp_path: Path, packed: Path) -> None:
    job = Job(recipe=tiny_recipe(tmp_path), data=packed, run=tmp_path)
    masked, uniform = drawn(job), drawn(job, noise="uniform")
    assert torch.equal(masked.rows_RL, uniform.rows_RL)
    assert torch.equal(masked.targets_BG, uniform.targets_BG)
    assert torch.equal(masked.known_BC, uniform.known_BC)
    hidden = ~masked.known_BC
    assert torch.equal(masked.canvas_BC[~hidden], uniform.canvas_BC[~hidden])
    assert set(masked.canvas_BC[hidden].tolist()) == {job.recipe.infill.mask_token_id}
    noise = uniform.canvas_BC[hidden]
    assert len(noise.unique()) > 100
    assert 0.4 * N_IDS < noise.float().mean() < 0.6 * N_IDS


def test_the_table_has_a_row_for_each_recipe_and_says_why_one_failed() -> None:
    held = HeldOut(Loss(3.0, 0.75), Loss(3.5, 1.0), Loss(4.25, 1.25))
    done = Outcome(recipe="base", n_weights=4_400_000, steps=300, positions=2_400_000, cpu_seconds=1200.0, held=held)
    comparison = Comparison(20.0, 2, [done, Outcome(recipe="odd", error="a | b")])
    table = as_markdown(comparison).splitlines()
    assert "20 CPU minutes in each of 2 processes" in table[0]
    assert table[-2] == "| base | 4.4 | 300 | 2.40 | 2000 | 3.000 (0.750) | 3.500 (1.000) | 4.250 (1.250) |"
    assert table[-1].startswith("| odd | failed: a / b |")
    assert {line.count("|") for line in table[2:]} == {9}
    assert msgspec.json.decode(msgspec.json.encode(comparison), type=Comparison) == comparison


def test_two_recipes_of_one_name_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "tiny.toml").write_text(TINY)
    names = [str(tmp_path / folder / "tiny.toml") for folder in ("one", "two")]
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    where = ["--runs", str(tmp_path / "runs"), "--data", str(tmp_path), "--nice", str(nice), "--eager"]
    assert main(["train", "compare", *names, *where]) == 2
    assert "have the same name" in capsys.readouterr().err


@pytest.mark.slow
def test_every_recipe_gets_its_time_once_and_a_failed_one_stops_no_other(
    tmp_path: Path, packed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*names: str) -> tuple[int, list[Outcome]]:
        nice = str(os.getpriority(os.PRIO_PROCESS, 0))
        paths = [str(tmp_path / f"{name}.toml") for name in names]
        where = ["--data", str(packed), "--runs", str(tmp_path / "runs"), "--nice", nice, "--processes", "2"]
        status = main(["train", "compare", *paths, *where, "--minutes", "0.01", "--eager", "--json"])
        return status, msgspec.json.decode(capsys.readouterr().out, type=Comparison).outcomes

    (tmp_path / "tiny.toml").write_text(TINY)
    (tmp_path / "fast.toml").write_text('base = "tiny.toml"\n[schedule]\nmatrix_lr = 1e30\nother_lr = 1e30\n')
    mixture = "[shape]\nnum_experts = 4\ntop_k_experts = 2\n"
    (tmp_path / "mixture.toml").write_text(f'base = "tiny.toml"\n{mixture}[schedule]\nmatrix_optimiser = "adamw"\n')
    status, found = run("tiny", "fast", "mixture")
    assert status == 0
    tiny, fast, mixture = found
    assert "FloatingPointError" in fast.error
    assert fast.held is None
    for one in (tiny, mixture):
        assert not one.error
        assert one.held is not None
        assert one.cpu_seconds >= 0.01 * 60
        assert one.steps > 0
        assert one.positions_per_second > 0
    assert mixture.n_weights > tiny.n_weights
    assert not list((tmp_path / "runs" / "tiny").glob("*.safetensors")), "what only a longer run needs is gone"
    assert "failed" in (tmp_path / "runs" / "comparison.md").read_text()

    curve = tmp_path / "runs" / "tiny" / "curve.jsonl"
    before = curve.read_text()
    assert [json.loads(line)["step"] for line in before.splitlines()][-1] == tiny.steps
    _, again = run("tiny")
    assert again == [tiny]
    assert curve.read_text() == before

    (tmp_path / "tiny.toml").write_text(TINY.replace("seed = 1", "seed = 2"))
    _, changed = run("tiny")
    assert "another recipe of this name" in changed[0].error


def test_a_comparison_names_a_recipe_that_cannot_be_read_before_it_trains(tmp_path: Path) -> None:
    plan = Plan(1.0, tmp_path, lambda recipe: tmp_path, lambda recipe: 1, False)
    with pytest.raises(Exception, match="no recipe absent"):
        next(compare(["absent"], plan))
    assert not list(tmp_path.iterdir())
