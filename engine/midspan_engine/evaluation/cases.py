"""Gaps cut from held-out files, the way an editor would ask for them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from midspan_engine.errors import InputError
from midspan_engine.training.corpus import read_split
from midspan_engine.training.gaps import cut

ONE_LINE_KINDS = ("rest_of_line", "arguments", "right_hand_side", "condition", "whole_line")
"""Kinds of one-line gap, drawn evenly."""


@dataclass(frozen=True, slots=True)
class Case:
    """One gap and its true text."""

    name: str
    kind: str
    prefix: str
    truth: str
    suffix: str


def held_out_cases(path: Path, n_cases: int, seed: int) -> list[Case]:
    """Cuts `n_cases` one-line gaps from the files of a corpus split, at most one a file while there are enough files.

    Raises InputError when the split is not there.
    """
    try:
        files = list(read_split(path))
    except OSError as error:
        raise InputError(
            f"the held-out files are not at {path}: run `midspan train python-small --prepare-only` first"
        ) from error
    rng = random.Random(seed)
    rng.shuffle(files)
    cases: list[Case] = []
    for attempt in range(20 * n_cases):
        if len(cases) == n_cases:
            break
        file = files[attempt % len(files)]
        kind = ONE_LINE_KINDS[attempt % len(ONE_LINE_KINDS)]
        gap = cut(kind, file.text, rng.randrange(len(file.text) // 10, len(file.text)), rng)
        if gap is None:
            continue
        start, end = gap
        truth = file.text[start:end]
        if truth.strip():
            name = f"{file.package}/{file.path}:{start}"
            cases.append(Case(name, kind, file.text[:start], truth, file.text[end:]))
    return cases
