"""HumanEval-Infilling: the data, and the sandbox that runs what a model wrote."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

import pytest

from midspan_engine.evaluation.humaneval import FOLDER, KINDS, humaneval_cases
from midspan_engine.evaluation.methods import Attempt
from midspan_engine.evaluation.sandbox import runs_through
from midspan_engine.evaluation.scores import judge, summarise


@pytest.mark.parametrize(("kind", "n"), [("single-line", 457), ("multi-line", 2233), ("random-span", 820)])
def test_the_data_are_the_even_numbered_problems(kind: str, n: int) -> None:
    cases = humaneval_cases(kind, None, seed=0)
    assert len(cases) == n
    assert all(int(re.findall(r"HumanEval/(\d+)", case.name)[0]) % 2 == 0 for case in cases)
    assert {case.is_one_line for case in cases} == {kind == "single-line"}


def test_the_licence_lies_beside_the_data() -> None:
    assert "MIT License" in (FOLDER / "LICENSE").read_text()


def test_the_seed_draws_the_cases() -> None:
    first, again, other = (humaneval_cases("single-line", 5, seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_the_break_of_a_line_stands_already() -> None:
    for case in humaneval_cases("single-line", None, seed=0):
        assert "\n" not in case.truth
        assert case.suffix.startswith("\n")


@pytest.mark.parametrize("kind", KINDS)
def test_the_true_text_passes_and_a_broken_one_does_not(kind: str) -> None:
    for case in humaneval_cases(kind, 2, seed=4):
        right = judge(case, Attempt(case.truth, 1.0, 1.0, 1, case.truth))
        broken = judge(case, Attempt(case.truth + " +", 1.0, 1.0, 1, ""))
        assert (right.passes, right.passes_early, right.is_exact) == (True, True, True)
        assert (broken.passes, broken.passes_early) == (False, False)


def test_another_text_that_passes_counts_as_passed_and_not_as_exact() -> None:
    case = next(case for case in humaneval_cases("single-line", None, seed=0) if "return" in case.truth)
    figures = summarise([judge(case, Attempt(case.truth + "  # so", 1.0, 1.0, 1))], 0.0)
    assert (figures.passed, figures.exact, figures.passed_early) == (1.0, 0.0, None)


def test_a_program_that_ends_passes_and_one_that_fails_does_not() -> None:
    assert runs_through("import math, re, hashlib, random, typing\nassert math.sqrt(4) == 2\nprint('text')")
    assert not runs_through("assert 1 == 2")
    assert not runs_through("1 +")
    assert not runs_through("x = '\ud800'")


@pytest.mark.parametrize("leave", ["import sys; sys.exit(0)", "import os; os._exit(0)", "raise SystemExit"])
def test_leaving_early_is_no_success(leave: str) -> None:
    assert not runs_through(leave)


@pytest.mark.parametrize(
    "forbidden",
    [
        "open('x', 'w')",
        "import os; os.open('x', os.O_CREAT)",
        "import os; os.mkdir('x')",
        "import os; os.fork()",
        "import os; os.kill(1, 0)",
        "import subprocess; subprocess.run(['true'])",
        "import socket; socket.socket()",
        "import ctypes; ctypes.CDLL(None)",
        "import shutil; shutil.rmtree('.')",
    ],
)
def test_files_processes_network_and_c_are_out_of_reach(forbidden: str) -> None:
    assert not runs_through(forbidden)
    # Refused, and by nothing else than the sandbox: the program may go on.
    assert runs_through(f"try:\n    {forbidden}\nexcept PermissionError:\n    pass")


def test_nothing_of_the_user_is_removed_or_inherited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "kept"
    kept.write_text("text")
    monkeypatch.setenv("MIDSPAN_SECRET", "1")
    assert not runs_through(f"import os\nos.remove({str(kept)!r})")
    assert not runs_through(f"import os\nos.truncate({str(kept)!r}, 0)")
    assert kept.read_text() == "text"
    assert runs_through("import os\nassert 'MIDSPAN_SECRET' not in os.environ\nassert os.listdir('.') == []")


def test_memory_and_time_are_limited() -> None:
    assert not runs_through("x = bytearray(2**31)")
    assert not runs_through("while True: pass", patience_s=1)
    assert not runs_through("import time\ntime.sleep(600)", patience_s=1)


def test_no_process_is_left_behind() -> None:
    before = children()
    assert not runs_through(
        "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: pass", patience_s=1
    )
    assert children() <= before


def children() -> set[str]:
    """The processes that this one has started, those of other tests included."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended just now
            parent = path.read_text().rpartition(")")[2].split()[1]
            if int(parent) == os.getpid():
                found.add(path.parent.name)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_true_text_passes(kind: str) -> None:
    # The gaps of a problem are cut from one program: each program runs once.
    cases = {case.prefix + case.truth + case.suffix + case.tests: case for case in humaneval_cases(kind, None, seed=0)}
    assert not [case.name for program, case in cases.items() if not runs_through(program)]
