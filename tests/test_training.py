"""Training rows are what the engine lays out, to the byte; a run can be stopped and goes on; its checkpoint is true."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from command_line import SOURCE_ROOTS
from midspan_engine.__main__ import main
from midspan_engine.engine import Engine
from midspan_engine.evaluation.report import Report
from midspan_engine.evaluation.scores import Scored, summarise
from midspan_engine.protocol import Fill
from midspan_engine.training.corpus import PackageReport
from midspan_engine.training.launch import can_compile
from midspan_engine.training.model_card import write_model_card
from midspan_engine.training.recipe import load_recipe
from midspan_engine.training.run_folder import Progressed, RunFolder
from midspan_engine.training.trainer import learning_rate_factor
from packed_corpus import N_IDS, ROOT, pack_own_sources
from tiny_recipe import TINY


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A packed corpus of this project's own files."""
    return pack_own_sources(tmp_path_factory.mktemp("packed"))


def test_the_learning_rate_warms_up_stays_and_falls_to_a_tenth() -> None:
    schedule = load_recipe("python-small").schedule
    factors = [learning_rate_factor(step, step / schedule.steps, schedule) for step in range(schedule.steps)]
    decay_start = round(schedule.steps * (1 - schedule.decay_share))
    assert factors[: schedule.warmup_steps] == sorted(factors[: schedule.warmup_steps])
    assert set(factors[schedule.warmup_steps : decay_start]) == {1.0}
    assert factors[decay_start:] == sorted(factors[decay_start:], reverse=True)
    assert 0.1 <= factors[-1] < 0.11


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("missing.toml", None, "one of: python-medium, python-small"),
        ("broken.toml", "seed = ", "is no usable recipe"),
        ("unknown.toml", TINY.replace("seed = 1", "seeds = 1"), "seed"),
        ("wide.toml", TINY.replace("row_tokens = 128", "row_tokens = 129"), "sliding_window"),
        ("short.toml", TINY.replace("canvas_length = 64", "canvas_length = 40"), "canvas_length"),
        ("endless.toml", TINY.replace("steps = 60", "steps = 0"), "either schedule.steps or schedule.minutes"),
        ("round.toml", 'base = "round.toml"', "its base leads back to itself"),
        ("baseless.toml", 'base = "absent"', "the base of"),
        ("sliding.toml", TINY.replace('"full_attention"', '"sliding_attention"'), "full_attention"),
    ],
)
def test_a_wrong_recipe_is_refused_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: str | None, told: str
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    assert told in refused(capsys, tmp_path / name)


def test_a_run_that_cannot_begin_says_why(tmp_path: Path, packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = tmp_path / "tiny.toml"
    recipe.write_text(TINY)
    run = tmp_path / "run"
    assert "train.bin" in refused(capsys, recipe, "--data", tmp_path)
    assert "give one of them" in refused(capsys, recipe, "--data", packed, "--steps", 3, "--minutes", 3)
    assert "--device nowhere cannot be used" in refused(capsys, recipe, "--data", packed, "--device", "nowhere")
    assert "1, 2 processes" in refused(capsys, recipe, "--data", packed, "--processes", 3)
    assert "neither model.safetensors nor" in refused(capsys, recipe, "--data", packed, "--from", tmp_path)
    with RunFolder(run).locked():
        assert "another process" in refused(capsys, recipe, "--data", packed, "--run", run)
    short = tmp_path / "short"
    short.mkdir()
    for name in ("tokenizer.json", "train.bin", "held.bin"):
        (short / name).write_bytes((packed / name).read_bytes()[: 100 if name == "held.bin" else None])
    assert "too short" in refused(capsys, recipe, "--data", short, "--run", run)
    assert not (run / "checkpoint").exists(), "a refused run writes nothing"


def test_without_a_compiler_training_does_not_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler --flag")
    assert not can_compile()


def test_the_model_card_lists_licences_results_and_limits_and_no_path_of_the_machine(
    tmp_path: Path, packed: Path
) -> None:
    run = RunFolder(tmp_path / "run")
    run.write_configs(load_recipe("python-small"), packed / "tokenizer.json")
    (run.path / "progress.json").write_bytes(msgspec.json.encode(Progressed(step=200, positions=819200, seconds=600)))
    # A kill at step 110 and a resume at step 90: the point at 100 was measured twice.
    steps = [*range(10, 110, 10), *range(100, 210, 10)]
    points = [
        {"step": step, "positions": step * 4096, "held": {"causal": 5, "quoted": 5.5, "canvas": 6}} for step in steps
    ]
    run.curve.write_text("".join(json.dumps(point) + "\n" for point in points))
    reports = [
        PackageReport("attrs", "26.1", "MIT", "train", 12, 90_000),
        PackageReport("rich", "15.0", "MIT", "held", 3, 10_000),
        PackageReport("gone", "1.0", "GPL", "train", 0, 0, "licence is not known to be permissive"),
    ]
    evaluation = tmp_path / "eval.json"
    figures = summarise(
        [Scored("x", True, 0.25, True, 0.9, 9, 4, is_right=True), Scored("x", False, 0.75, False, 0, 9, 5)], 0.3
    )
    report = Report(suite="held-out", length="unknown", min_confidence=0.3, seed=0, methods={"Midspan": figures})
    evaluation.write_bytes(msgspec.json.encode(report))
    card = write_model_card(run, reports, evaluation).read_text()

    assert "| attrs | 26.1 | MIT | train | 12 |" in card
    assert "gone" not in card
    assert card.count("| 200 | 0.82 | 5.00 | 5.50 | 6.00 |") == 1
    assert "| Midspan | 50.0% | 50.0% | 50.0% | 50.0% | 100.0% | 100.0% | 4.5 |" in card
    assert "Python only" in card
    assert "](curve.svg)" in card
    assert (run.checkpoint / "curve.svg").read_text().count("<polyline") == 3
    assert str(tmp_path) not in card
    assert str(Path.home()) not in card


def refused(capsys: pytest.CaptureFixture[str], recipe: Path, *options: object) -> str:
    """Returns the one line that a refused `midspan train` says."""
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    assert main(["train", str(recipe), "--nice", str(nice), "--eager", *map(str, options)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("midspan: ")
    assert said.count("\n") == 1
    return said


def start(
    recipe: Path, packed: Path, run: Path, *options: str, beside: Path | None = None, **variables: str
) -> subprocess.Popen[str]:
    # At the default of 19 other work on the machine would starve it.
    nice = str(os.getpriority(os.PRIO_PROCESS, 0))
    where = ("--data", str(packed), "--run", str(run), "--nice", nice)
    return midspan_engine("train", str(recipe), *where, *options, beside=beside, **variables)


def midspan_engine(*arguments: str, beside: Path | None = None, **variables: str) -> subprocess.Popen[str]:
    """Starts the engine's command line; modules in the folder `beside` come before all others."""
    own = [str(ROOT / root) for root in SOURCE_ROOTS]
    roots = os.pathsep.join(own if beside is None else [str(beside), *own])
    return subprocess.Popen(
        [sys.executable, "-m", "midspan_engine", *arguments],
        env={**os.environ, "PYTHONPATH": roots, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.slow
def test_a_run_is_stopped_goes_on_where_it_was_and_ends_with_a_true_checkpoint(tmp_path: Path, packed: Path) -> None:
    recipe, run = tmp_path / "tiny.toml", tmp_path / "run"
    recipe.write_text(TINY)
    first = start(recipe, packed, run, "--eager", "--processes", "2")
    assert first.stdout is not None
    said = ""
    while "step 1/60" not in said:
        line = first.stdout.readline()
        assert line, said
        said += line
    first.send_signal(signal.SIGTERM)
    said += first.communicate(timeout=120)[0]
    stopped = RunFolder(run).progress().step
    assert first.returncode == 130, said
    assert 1 <= stopped < 60
    assert f"Stopped at step {stopped}" in said

    second = start(recipe, packed, run, "--eager", "--processes", "2")
    said = second.communicate(timeout=300)[0]
    assert second.returncode == 0, said
    assert f"Going on from step {stopped} of 60" in said
    assert f"--checkpoint {run / 'checkpoint'}" in said
    points = [json.loads(line) for line in RunFolder(run).curve.read_text().splitlines()]
    assert points[-1]["step"] == 60
    assert points[-1]["held"]["causal"] < math.log(N_IDS) - 1, "it knows more than that all tokens are equally likely"

    # One process takes over the optimiser states of two; a compiler is not needed.
    third = start(recipe, packed, run, "--steps", "62", "--processes", "1", CXX="no-such-compiler")
    said = third.communicate(timeout=300)[0]
    assert third.returncode == 0, said
    assert "No C++ compiler" in said
    assert RunFolder(run).progress().step == 62
    assert not (run / "state-1.safetensors").exists()

    # In a process of its own: transformers imports parts of torch that warn of their deprecation.
    verified = midspan_engine("verify", str(run / "checkpoint"), "--prompt-tokens", "100")
    said = verified.communicate(timeout=300)[0]
    assert verified.returncode == 0, said
    engine = Engine.load(run / "checkpoint")
    request = Fill(id="1", document="d", language="python", parts=("def f(x):\n    return ", "\n"))
    filled = engine.fill(request, received=time.perf_counter(), is_cancelled=lambda: False)
    assert filled.candidates or filled.silence


@pytest.mark.slow
def test_when_the_command_is_killed_its_processes_save_and_end(tmp_path: Path, packed: Path) -> None:
    recipe, run = tmp_path / "tiny.toml", tmp_path / "run"
    recipe.write_text(TINY)
    killed = start(recipe, packed, run, "--eager", "--processes", "2", "--steps", "100000")
    assert killed.stdout is not None
    while "step 1/" not in (line := killed.stdout.readline()):
        assert line
    killed.kill()
    killed.stdout.read()  # ends when the last process that could write has ended
    killed.wait()
    killed.stdout.close()
    assert RunFolder(run).progress().step >= 1
    assert (run / "checkpoint" / "model.safetensors").exists()
