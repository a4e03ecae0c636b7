"""What tells whether an answer is right, beside its probability."""

from __future__ import annotations

import json
import random
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from midspan_engine.engine import Engine
from midspan_engine.evaluation import command
from midspan_engine.evaluation.cases import Case
from midspan_engine.evaluation.signals import NAMES, Answered, judge, read_signals
from midspan_engine.training.corpus import SourceFile
from served_checkpoint import CHECKPOINT


def answers(rng: random.Random, of: int) -> list[Answered]:
    """Answers that are exact as often as the signal in column `of` says; the others say nothing."""
    made = []
    for n in range(3000):
        signals = (rng.gauss(0, 2), rng.gauss(0, 2), rng.gauss(0, 2), rng.gauss(0, 2))
        made.append(Answered(f"{n % 40}.py", signals, signals[of] + rng.gauss(0, 1) > 0))
    return made


def test_a_signal_that_tells_ranks_exact_answers_first() -> None:
    found = answers(random.Random(3), of=1)
    telling, silent = judge("telling", found, (1,)), judge("silent", found, (2,))
    assert telling.area > 0.9
    assert silent.area == pytest.approx(0.5, abs=0.05)
    assert telling.nats < 0.4 < 0.69 < silent.nats


def test_a_signal_that_says_nothing_new_improves_nothing() -> None:
    found = answers(random.Random(4), of=0)
    assert judge("both", found, (0, 3)).nats == pytest.approx(judge("one", found, (0,)).nats, abs=0.01)


def test_the_signals_of_a_sure_answer_are_read() -> None:
    text = "first = compute(alpha, beta)\nother = 1\nsecond = compute(alpha, beta)\n"
    start = text.rindex("(alpha")
    case = Case("a.py", "rest_of_line", text[:start], "(alpha, beta)", "\n")
    found = read_signals(Engine.load(CHECKPOINT), case)
    assert found is not None
    probability, entropy, agreement, _ = found.signals
    assert found.is_exact
    assert probability < 0 < entropy
    assert 0 <= agreement <= 1


def test_the_command_prints_each_set_of_signals(tmp_path: Path) -> None:
    split = tmp_path / "held.jsonl"
    text = Path(__file__).read_text(encoding="utf-8")
    files = [SourceFile("tenacity", f"{n}.py", "Apache-2.0", text) for n in range(3)]
    split.write_bytes(b"".join(msgspec.json.encode(file) + b"\n" for file in files))
    options = ["signals", "--data", str(split), "--cases", "10"]
    result = CliRunner().invoke(command.command, [*options, "--json"], catch_exceptions=False)
    assert [each["name"] for each in json.loads(result.stdout)] == list(NAMES)
    assert "area under ROC" in CliRunner().invoke(command.command, options, catch_exceptions=False).stdout
