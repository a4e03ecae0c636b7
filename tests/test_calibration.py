"""Fitting the vote and the confidence of a checkpoint."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from midspan_engine.config import load_infill_config
from midspan_engine.engine import Engine
from midspan_engine.errors import InputError
from midspan_engine.evaluation import command
from midspan_engine.evaluation.calibration import (
    N_MATCHES,
    Match,
    calibrate,
    fit_power,
    fit_weights,
    read_slots,
)
from midspan_engine.evaluation.cases import CALIBRATION_PACKAGES, Case, held_out_files
from midspan_engine.protocol import Lend
from midspan_engine.training.corpus import SourceFile
from served_checkpoint import CHECKPOINT
from tiny_engine import BLANKS, tiny_engine


def case_of(text: str, truth: str) -> Case:
    start = text.rindex(truth)
    return Case("a.py", "rest_of_line", text[:start], truth, text[start + len(truth) :])


def test_the_weight_of_an_opinion_is_found_from_what_it_got_right() -> None:
    rng = random.Random(5)
    matches = [Match(3, 1.0 if rng.random() < 0.7 else 0.0) for _ in range(4000)]
    weights, p = fit_weights(matches, np.full(len(matches), 0.01), 8)
    assert weights[2] == pytest.approx(0.7, abs=0.03)
    assert weights[3:] == weights[2:-1], "what is never seen takes the weight of the next shorter match"
    assert -np.log(p).mean() < 4.6, "the repeats help"


def test_an_opinion_that_is_never_right_gets_no_weight() -> None:
    weights, _ = fit_weights([Match(1, 0.0)] * 50, np.full(50, 0.5), 8)
    assert weights == (0.0,) * 8


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
    assert slots[-1].own.length >= N_MATCHES or slots[-1].own.repeated > 0
    assert sum(slot.own.repeated for slot in slots) >= len(slots) - 2, "the document has said the same before"
    assert all(slot.beside == Match(0, 0.0) for slot in slots), "there is no other file"


def test_what_other_files_repeat_is_seen_and_the_file_itself_is_not_among_them() -> None:
    engine = Engine.load(CHECKPOINT)
    text = "second = compute(alpha, beta)\n"
    case = dataclasses.replace(case_of(text, "(alpha, beta)"), workspace="w", file="b.py")
    engine.lend(Lend(workspace="w", file="b.py", text=text))
    assert all(slot.beside == Match(0, 0.0) for slot in read_slots(engine, case))
    engine.lend(Lend(workspace="w", file="a.py", text="first = compute(alpha, beta)\nother = 1\n"))
    engine.settle_workspaces()
    slots = read_slots(engine, case)
    assert sum(slot.beside.repeated for slot in slots) >= len(slots) - 2
    assert all(slot.own == Match(0, 0.0) or slot.own.length <= 2 for slot in slots)


def test_a_checkpoint_without_a_vote_is_refused() -> None:
    with pytest.raises(InputError, match="no vote"):
        calibrate(tiny_engine(infill=BLANKS), [], [], lambda cases, what: cases)


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
    options = [
        "calibrate",
        "--checkpoint",
        str(folder),
        "--data",
        str(split),
        "--trained",
        str(split),
        "--cases",
        "4",
        "--write",
        "--json",
    ]
    result = CliRunner().invoke(command.command, options, catch_exceptions=False)
    fitted, after = json.loads(result.stdout), load_infill_config(folder)
    assert fitted["n_gaps"] == 4
    assert after.causal_weight == fitted["causal_weight"]
    assert after.repeat_weights == tuple(fitted["repeat_weights"])
    assert after.workspace_weights == tuple(fitted["workspace_weights"])
    assert after.confidence_power == fitted["confidence_power"]
    changed = {name for name in before.__struct_fields__ if getattr(before, name) != getattr(after, name)}
    assert changed <= {"causal_weight", "repeat_weights", "workspace_weights", "confidence_power"}
