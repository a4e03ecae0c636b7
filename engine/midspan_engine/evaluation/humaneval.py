"""HumanEval-Infilling: gaps in small functions, judged by running the function's tests (pass@1, one greedy answer).

The even-numbered problems of OpenAI's data set (arXiv 2207.14255) lie beside this module under their MIT licence.
Single-line and multi-line gaps of the data set are whole lines with their line break: here, as in an editor, the break
stands already and the cursor waits on an empty line, so a method has to write neither the break nor, for a single
line, find out that there is only one.
"""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import msgspec

from midspan_engine.evaluation.cases import Case

FOLDER = Path(__file__).with_name("humaneval_infilling")
KINDS = {"single-line": "SingleLine", "multi-line": "MultiLine", "random-span": "RandomSpan"}
"""The kinds of gap by what the data set calls them."""


class _Problem(msgspec.Struct, frozen=True):
    task_id: str
    entry_point: str
    prompt: str
    suffix: str
    canonical_solution: str
    test: str


def humaneval_cases(kind: str, n_cases: int | None, seed: int) -> list[Case]:
    """Returns `n_cases` cases of a kind drawn by the seed, all of them for None."""
    with gzip.open(FOLDER / f"HumanEval-{KINDS[kind]}Infilling.jsonl.gz") as lines:
        problems = [msgspec.json.decode(line, type=_Problem) for line in lines]
    if n_cases is not None and n_cases < len(problems):
        problems = random.Random(seed).sample(problems, n_cases)
    return [_case(kind, problem) for problem in problems]


def _case(kind: str, problem: _Problem) -> Case:
    truth, suffix = problem.canonical_solution, problem.suffix
    if kind != "random-span":
        assert truth.endswith("\n"), "a gap of lines ends with a line break"
        truth, suffix = truth[:-1], "\n" + suffix
    tests = f"\n{problem.test}\ncheck({problem.entry_point})\n"
    return Case(problem.task_id, kind, problem.prompt, truth, suffix, kind == "single-line", tests)
