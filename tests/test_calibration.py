"""Fitting the vote and the confidence of a checkpoint."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from midspan_engine.config import load_infill_config
from midspan_engine.engine import Engine
from midspan_engine.errors import InputError
from midspan_engine.evaluation import command
from midspan_engine.evaluation.calibration import (
    CAUSAL_WEIGHTS,
    N_MATCHES,
    Slot,
    calibrate,
    fit_power,
    fit_repeats,
    read_slots,
)
from midspan_engine.evaluation.cases import CALIBRATION_PACKAGES, Case, held_out_files
from midspan_engine.training.corpus import SourceFile
from served_checkpoint import CHECKPOINT
from tiny_engine import BLANKS, tiny_engine


def case_of(text: str, truth: str) -> Case:
    start = text.rindex(truth)
    return Case("a.py", "rest_of_line", text[:start], truth, text[start + len(truth) :])


def test_the_weight_of_the_repeats_is_found_from_what_they_got_right() -> None:
    rng = random.Random(5)
    flat = (0.01,) * len(CAUSAL_WEIGHTS)
    slots = [Slot(3, 1.0 if rng.random() < 0.7 else 0.0, flat) for _ in range(4000)]
    weights, nats = fit_repeats(slots, 0)
    assert weights[2] == pytest.approx(0.7, abs=0.03)
    assert weights[3:] == weights[2:-1], "what is never seen takes the weight of the next shorter match"
    assert nats < 4.6, "the repeats help"


def test_repeats_that_are_never_right_get_no_weight() -> None:
    slots = [Slot(1, 0.0, (0.5,) * len(CAUSAL_WEIGHTS))] * 50
    weights, _ = fit_repeats(slots, 0)
    assert weights == (0.0,) * N_MATCHES


@pytest.mark.parametrize("power", [0.5, 1.0, 1.5])
def test_the_power_makes_confidences_come_true(power: float) -> None:
    rng = random.Random(7)
    p = [rng.random() for _ in range(20000)]
    assert fit_power([(one, rng.random() < one**power) for one in p]) == pytest.approx(power, abs=0.1)


def test_every_slot_of_a_true_text_is_read_and_its_repeats_are_seen() -> None:
    engine = Engine.load(CHECKPOINT)
    text = "first = compute(alpha, beta)\nother = 1\nsecond = compute(alpha, beta)\n"
    slots = read_slots(engine, case_of(text, "(alpha, beta)"))
    assert len(slots) >= 4
    assert all(0.0 <= p <= 1.0 for slot in slots for p in slot.p)
    assert slots[-1].n_match == N_MATCHES or slots[-1].repeated > 0
    assert sum(slot.repeated for slot in slots) >= len(slots) - 2, "the document has said the same before"


def test_a_checkpoint_without_a_vote_is_refused() -> None:
    with pytest.raises(InputError, match="no vote"):
        calibrate(tiny_engine(infill=BLANKS), [], lambda cases, what: cases)


@pytest.fixture
def split(tmp_path: Path) -> Path:
    """A corpus split of two packages, one to fit on; their text is this project's own."""
    path = tmp_path / "held.jsonl"
    text = Path(__file__).read_text(encoding="utf-8")
    files = [SourceFile(package, "a.py", "Apache-2.0", text) for package in ("tenacity", "somebody")]
    path.write_bytes(b"".join(msgspec.json.encode(file) + b"\n" for file in files))
    return path


def test_no_file_is_both_fitted_and_tested_on(split: Path) -> None:
    fitted, tested = (held_out_files(split, 0, for_calibration=it) for it in (True, False))
    assert {file.package for file in fitted} <= CALIBRATION_PACKAGES
    assert {file.package for file in tested}.isdisjoint(CALIBRATION_PACKAGES)
    assert len(fitted) + len(tested) == 2


def test_the_command_writes_what_it_fitted_and_nothing_else(split: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(CHECKPOINT, tmp_path / "checkpoint")
    before = load_infill_config(folder)
    options = ["calibrate", "--checkpoint", str(folder), "--data", str(split), "--cases", "4", "--write", "--json"]
    result = CliRunner().invoke(command.command, options, catch_exceptions=False)
    fitted, after = json.loads(result.stdout), load_infill_config(folder)
    assert fitted["n_gaps"] == 4
    assert after.causal_weight == fitted["causal_weight"]
    assert after.repeat_weights == tuple(fitted["repeat_weights"])
    assert after.confidence_power == fitted["confidence_power"]
    changed = {name for name in before.__struct_fields__ if getattr(before, name) != getattr(after, name)}
    assert changed <= {"causal_weight", "repeat_weights", "confidence_power"}
