"""A recipe may say only what differs from another one; what ships is usable and differs in one thing."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from midspan_engine.__main__ import main
from midspan_engine.training.job import Job, share_done
from midspan_engine.training.recipe import RECIPES, ablations, load_recipe, title
from midspan_engine.training.run_folder import Progressed
from tiny_recipe import TINY, rescheduled


def test_a_recipe_with_a_base_says_only_what_differs(tmp_path: Path) -> None:
    (tmp_path / "whole.toml").write_text(TINY)
    (tmp_path / "wider.toml").write_text('base = "whole.toml"\n[shape]\nhidden_size = 96\n')
    (tmp_path / "more.toml").write_text('base = "wider.toml"\nseed = 2\n[shape]\nnum_experts = 2\n')
    whole, more = load_recipe(str(tmp_path / "whole.toml")), load_recipe(str(tmp_path / "more.toml"))
    shape = msgspec.structs.replace(whole.shape, hidden_size=96, num_experts=2)
    assert more == msgspec.structs.replace(whole, seed=2, shape=shape)


@pytest.mark.parametrize("name", [path.stem for path in RECIPES.glob("*.toml")] + ablations())
def test_every_recipe_that_ships_is_usable(name: str) -> None:
    assert load_recipe(name).infill.languages == ("python",)


def test_each_variant_differs_from_their_base_and_has_a_name_of_its_own() -> None:
    base, *variants = ablations()
    assert title(base) == "base"
    assert len({title(name) for name in variants}) == len(variants) > 10
    assert title("ablations/canvas-weight-0.5") == title("some/canvas-weight-0.5.toml") == "canvas-weight-0.5"
    assert all(load_recipe(name) != load_recipe(base) for name in variants)


def test_every_variant_trains_as_many_row_tokens_a_step_as_their_base() -> None:
    data = [load_recipe(name).data for name in ablations()]
    assert len({one.row_tokens * one.causal_rows_per_step for one in data}) == 1
    assert len({one.row_tokens * one.infill_rows_per_step for one in data}) == 1
    assert len({one.canvases_per_row * one.infill_rows_per_step for one in data}) == 1


def test_a_schedule_in_minutes_goes_by_the_clock_that_the_job_names(tmp_path: Path) -> None:
    recipe = rescheduled(load_recipe("python-small"), steps=0, minutes=2.0)
    done = Progressed(step=7, seconds=60.0, cpu_seconds=30.0)
    job = Job(recipe=recipe, data=tmp_path, run=tmp_path)
    assert share_done(job, done) == 0.5
    assert share_done(msgspec.structs.replace(job, clock="cpu"), done) == 0.25
    stepped = msgspec.structs.replace(job, recipe=rescheduled(recipe, steps=14, minutes=0.0))
    assert share_done(stepped, done) == 0.5


def test_the_help_of_a_recipe_is_that_of_training_and_names_those_that_ship(capsys: pytest.CaptureFixture[str]) -> None:
    for call in (["python-small", "--help"], ["-h"], ["other.toml", "--steps", "3", "--help"]):
        assert main(["train", *call]) == 0
        told = capsys.readouterr().out
        assert told.startswith("Usage: midspan train RECIPE [OPTIONS] | COMMAND [ARGS]...")
        assert all(path.stem in told for path in RECIPES.glob("*.toml"))
    assert main(["train", "python-small", "--frobnicate"]) == 2
    assert "see `midspan train RECIPE --help`" in capsys.readouterr().err
