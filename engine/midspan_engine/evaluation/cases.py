"""Gaps cut from held-out files, the way an editor would ask for them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from midspan_engine.errors import InputError
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


class _Record(msgspec.Struct):
    package: str
    path: str
    text: str


def held_out_cases(path: Path, n_cases: int, seed: int, kinds: Sequence[str] = ONE_LINE_KINDS) -> list[Case]:
    """Cuts `n_cases` one-line gaps from the files of a corpus split, at most one a file while there are enough files.

    Raises InputError when the split is not there.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise InputError(
            f"the held-out files are not at {path}: run `midspan train python-small --prepare-only` first"
        ) from error
    records = msgspec.json.decode(b"[" + b",".join(lines) + b"]", type=list[_Record])
    rng = random.Random(seed)
    rng.shuffle(records)
    cases: list[Case] = []
    for attempt in range(20 * n_cases):
        if len(cases) == n_cases:
            break
        record = records[attempt % len(records)]
        kind = kinds[attempt % len(kinds)]
        gap = cut(kind, record.text, rng.randrange(len(record.text) // 10, len(record.text)), rng)
        if gap is None:
            continue
        start, end = gap
        truth = record.text[start:end]
        if truth.strip():
            name = f"{record.package}/{record.path}:{start}"
            cases.append(Case(name, kind, record.text[:start], truth, record.text[end:]))
    return cases
