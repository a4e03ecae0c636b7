"""Whether anything says better than an answer's probability that it is right: what a confidence could be made of.

Beside the logarithm of the probability: the mean entropy of the slots' distributions, the share of the tokens that the
canvas would choose as well while all of the gap is hidden, and how much more probable the answer makes what follows
it. A logistic regression is fitted on each of them together with the probability, and judged on files it has not seen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt
import torch

from midspan_engine.engine import Engine
from midspan_engine.evaluation.cases import Case
from midspan_engine.evaluation.read_gap import ReadGap

SUFFIX_TOKENS = 16
"""Of what follows a gap: a line or two."""
N_FOLDS = 10
_RIDGE = 1.0
"""Weight of the penalty on the squared coefficients of normalised signals; chosen."""
_LEAST = 1e-6
"""Probabilities below it count as it."""
NAMES: Mapping[str, tuple[int, ...]] = {
    "probability": (0,),
    "and entropy": (0, 1),
    "and agreement of the canvas": (0, 2),
    "and what follows": (0, 3),
    "all of them": (0, 1, 2, 3),
}
"""The columns of the signals that are judged together."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer: its signals, in the order of the module's first lines, and whether it is exact."""

    file: str
    signals: tuple[float, float, float, float]
    is_exact: bool


class Signal(msgspec.Struct, frozen=True):
    """How well some signals say which answers are exact, on files that they were not fitted on."""

    name: str
    nats: float
    """Mean surprise of an answer; less is better."""
    area: float
    """Under the ROC curve: how often an exact answer ranks before one that is not."""


def compare_signals(
    engine: Engine, cases: Sequence[Case], watched: Callable[[Sequence[Case], str], Iterable[Case]]
) -> list[Signal]:
    """Fills one-line gaps and judges each set of signals in NAMES."""
    found = [read_signals(engine, case) for case in watched(cases, "filling")]
    answers = [answered for answered in found if answered is not None]
    return [judge(name, answers, columns) for name, columns in NAMES.items()]


@torch.inference_mode()
def read_signals(engine: Engine, case: Case) -> Answered | None:
    """Fills a gap and reads its answer again; None where there is none."""
    candidates = engine.fill(case.request(), received=time.perf_counter(), is_cancelled=lambda: False).candidates
    if not candidates:
        return None
    best = candidates[0]
    read = ReadGap.of(engine, case, best.text)
    entropy = float(torch.special.entr(read.encoder(len(read.ids)).softmax(-1)).sum(-1).mean())
    agreement = float((read.canvas([0])[0].argmax(-1) == torch.tensor(read.ids)).float().mean())
    follows, healed = read.after[:SUFFIX_TOKENS], engine.tokens.encode(read.prompt.required[0].decode())
    gain = sum(
        sign * float(read.reader.log_probabilities(read.before + between, follows).sum()) / max(1, len(follows))
        for sign, between in ((1, read.ids[:-1]), (-1, healed))
        if follows
    )
    signals = (float(np.log(max(best.confidence, _LEAST))), entropy, agreement, gain)
    return Answered(case.file or case.name, signals, best.text.rstrip() == case.truth.rstrip())


def judge(name: str, answers: Sequence[Answered], columns: Sequence[int]) -> Signal:
    """Fits on all files but a tenth and judges that, ten times."""
    x = np.array([[each.signals[column] for column in columns] for each in answers])
    x = (x - x.mean(0)) / np.maximum(x.std(0), _LEAST)
    x = np.c_[np.ones(len(x)), x]
    y = np.array([each.is_exact for each in answers], dtype=np.float64)
    files = sorted({each.file for each in answers})
    fold = np.array([files.index(each.file) % N_FOLDS for each in answers])
    told = np.zeros(len(y))
    for n in range(N_FOLDS):
        told[fold == n] = x[fold == n] @ _fit(x[fold != n], y[fold != n])
    p = np.clip(1 / (1 + np.exp(-told)), _LEAST, 1 - _LEAST)
    nats = float(-(y * np.log(p) + (1 - y) * np.log(1 - p)).mean())
    exact, others = told[y == 1], told[y == 0]
    area = float((exact[:, None] > others).mean()) if len(exact) and len(others) else float("nan")
    return Signal(name, round(nats, 4), round(area, 3))


def _fit(x: Floats, y: Floats) -> Floats:
    """Returns the coefficients of a logistic regression, by Newton's method; the first one is the intercept."""
    weights = np.zeros(x.shape[1])
    ridge = np.diag([0.0] + [_RIDGE] * (x.shape[1] - 1)) + _LEAST * np.eye(x.shape[1])
    for _ in range(30):
        p = 1 / (1 + np.exp(-np.clip(x @ weights, -30, 30)))
        slope = x.T @ (p - y) + ridge @ weights
        weights -= np.linalg.solve((x * (p * (1 - p))[:, None]).T @ x + ridge, slope)
    return weights
