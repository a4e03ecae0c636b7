"""The evaluation harness: gaps, scores and the command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from midspan_engine.errors import InputError
from midspan_engine.evaluation.cases import ONE_LINE_KINDS, Case, held_out_cases
from midspan_engine.evaluation.methods import Attempt, cut_at_suffix
from midspan_engine.evaluation.report import Report
from midspan_engine.evaluation.scores import interval, judge, summarise
from midspan_engine.training.corpus import SourceFile, read_split
from served_checkpoint import CHECKPOINT

SOURCES = Path(__file__).parent.parent / "engine" / "midspan_engine"


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus split made of this project's own files."""
    path = tmp_path_factory.mktemp("corpus") / "held.jsonl"
    files = [
        SourceFile("midspan", file.name, "Apache-2.0", file.read_text(encoding="utf-8"))
        for file in sorted(SOURCES.glob("*.py"))
        if file.stat().st_size > 1000
    ]
    path.write_bytes(b"".join(msgspec.json.encode(file) + b"\n" for file in files))
    return path


def test_a_case_gives_back_its_file_when_the_truth_is_put_in_place(split: Path) -> None:
    texts = {file.text for file in read_split(split)}
    cases = held_out_cases(split, 50, seed=3)
    assert len(cases) == 50
    assert {case.kind for case in cases} == set(ONE_LINE_KINDS)
    for case in cases:
        assert case.prefix + case.truth + case.suffix in texts
        assert "\n" not in case.truth
        assert case.truth.strip()


def test_the_same_seed_cuts_the_same_gaps_and_another_seed_others(split: Path) -> None:
    assert held_out_cases(split, 20, seed=1) == held_out_cases(split, 20, seed=1)
    assert held_out_cases(split, 20, seed=1) != held_out_cases(split, 20, seed=2)


def test_missing_held_out_files_say_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="prepare-only"):
        held_out_cases(tmp_path / "held.jsonl", 1, seed=0)


def test_the_truth_scores_exact_and_valid_and_a_broken_bracket_does_not() -> None:
    case = Case("x", "arguments", "print(", "1, 2", ")\n")
    right = judge(case, Attempt("1, 2 ", 0.9, 1.0, 1))
    broken = judge(case, Attempt("1, (2", 0.9, 1.0, 1))
    assert right.is_exact
    assert right.is_valid
    assert not broken.is_exact
    assert not broken.is_valid
    assert 0 < broken.similarity < 1


def test_an_empty_answer_is_neither_shown_nor_valid() -> None:
    empty = judge(Case("x", "arguments", "print(", "1", ")\n"), Attempt("", 1.0, 1.0, 1))
    assert not empty.is_valid
    assert summarise([empty], min_confidence=0.3).shown == 0.0


def test_a_continuation_is_cut_where_the_rest_of_the_line_begins() -> None:
    case = Case("x", "arguments", "print(", "1", ")  # done\n")
    assert cut_at_suffix("1)  # done", case) == "1"
    assert cut_at_suffix("1", case) == "1"


def test_wilson_interval_holds_the_share_and_narrows_with_more_cases() -> None:
    few, many = interval(3, 10), interval(300, 1000)
    assert few[0] < 0.3 < few[1]
    assert many[0] < 0.3 < many[1]
    assert many[1] - many[0] < few[1] - few[0]


@pytest.mark.slow
def test_the_command_reports_the_engine_beside_both_baselines(split: Path) -> None:
    command = [sys.executable, "-m", "midspan_engine", "eval", "held-out", "--checkpoint", str(CHECKPOINT)]
    command += ["--data", str(split), "--cases", "5", "--json"]
    done = subprocess.run(command, capture_output=True, check=True, timeout=120)
    report = msgspec.json.decode(done.stdout, type=Report)
    assert report.length == "unknown"
    assert set(report.methods) == {"midspan", "without suffix", "causal"}
    for figures in report.methods.values():
        assert figures.n == 5
        assert 0 <= figures.exact <= figures.shown_exact or figures.shown < 1
