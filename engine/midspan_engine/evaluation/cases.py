"""One gap to be filled and what is known of it, and the cases that are cut from held-out files."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from midspan_engine.errors import InputError
from midspan_engine.evaluation.syntax import gaps_by_kind
from midspan_engine.protocol import Fill
from midspan_engine.training.corpus import SourceFile, read_split

ONE_LINE_KINDS = ("rest_of_line", "arguments", "right_hand_side", "condition", "whole_line")
"""Kinds of one-line gap, drawn evenly."""
MULTI_LINE_KIND = "lines"
CALIBRATION_PACKAGES = frozenset({"APScheduler", "tenacity", "twine"})
"""Held out too, but constants are fitted on them and no suite tests on them. Chosen: 63 of 366 files."""
N_TRAINED_PACKAGES = 60
"""As many as are read in half a minute. Chosen."""
_MAX_TRIES = 20
"""Files tried for each case: a kind that is not found in so many is not in this corpus. Chosen."""


@dataclass(frozen=True, slots=True)
class Case:
    """One gap and its true text."""

    name: str
    kind: str
    prefix: str
    truth: str
    suffix: str
    is_one_line: bool = True
    """Whether the answer is asked for within the line."""
    tests: str = ""
    """What, put behind the filled file, must run without an error; nothing for a case without tests."""
    workspace: str = ""
    """Whose files lie beside this one; empty for a file by itself."""
    file: str = ""
    """Its name among them."""

    def request(self, **wishes: object) -> Fill:
        """Returns the request to fill the gap."""
        own = {"parts": (self.prefix, self.suffix), "workspace": self.workspace, "file": self.file}
        return Fill(id=0, document=self.name, **(own | wishes))  # type: ignore[arg-type]


def held_out_files(path: Path, seed: int, *, for_calibration: bool = False) -> list[SourceFile]:
    """Returns the files of a corpus split that are tested on, or fitted on, in an order that the seed decides.

    Raises InputError when the split is not there.
    """
    files = [f for f in _read(path) if (f.package in CALIBRATION_PACKAGES) == for_calibration]
    random.Random(seed).shuffle(files)
    return files


def trained_files(path: Path, seed: int) -> list[SourceFile]:
    """Returns the files of some packages of the split that a checkpoint was trained on, likewise."""
    packages = sorted({file.package for file in _read(path)})
    rng = random.Random(seed)
    chosen = set(rng.sample(packages, min(N_TRAINED_PACKAGES, len(packages))))
    files = [file for file in _read(path) if file.package in chosen]
    rng.shuffle(files)
    return files


def _read(path: Path) -> Iterator[SourceFile]:
    try:
        yield from read_split(path)
    except OSError as error:
        raise InputError(
            f"the files to evaluate on are not at {path}: run `midspan train python-small --prepare-only` first"
        ) from error


def held_out_cases(
    files: Sequence[SourceFile], n_cases: int, seed: int, kinds: Sequence[str] = ONE_LINE_KINDS
) -> list[Case]:
    """Cuts `n_cases` gaps, the kinds taking turns, at most one a file while there are enough files.

    The first tenth of a file, licence and imports, is left alone. Fewer come back where the files hold no more.
    """
    rng = random.Random(seed)
    cases: list[Case] = []
    for attempt in range(_MAX_TRIES * n_cases if files else 0):
        if len(cases) == n_cases:
            break
        file, kind = files[attempt % len(files)], kinds[len(cases) % len(kinds)]
        gaps = [gap for gap in gaps_by_kind(file.text).get(kind, ()) if gap[0] >= len(file.text) // 10]
        if gaps:
            start, end = rng.choice(gaps)
            if kind == "rest_of_line":
                start = rng.randrange(start, end)
            parts = file.text[:start], file.text[start:end], file.text[end:]
            name, is_one_line = name_of(file), kind != MULTI_LINE_KIND
            cases.append(Case(f"{name}:{start}", kind, *parts, is_one_line, workspace=file.package, file=name))
    return cases


def name_of(file: SourceFile) -> str:
    """Returns what a file is called among those of all packages."""
    return f"{file.package}/{file.path}"
