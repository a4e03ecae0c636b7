"""Fits the constants of a checkpoint's vote and of its confidence on held-out code that no suite tests on.

The true text of each gap is read slot by slot, as canvas and encoder see it when all before it is right: that gives the
encoder's weight and, by expectation maximisation, the weights of what document and other files repeat. Whole fills then
give the power that makes confidences come true, by maximum likelihood.

What other files repeat is weighed on many packages that the weights were trained on: of the few that are left out here
some repeat themselves from file to file more than others do, and a model that has seen a text leaves repeats less to
add. All else is fitted on held-out files by themselves.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import torch

from midspan_engine.config import InfillConfig
from midspan_engine.engine import Engine
from midspan_engine.errors import InputError
from midspan_engine.evaluation.cases import Case
from midspan_engine.evaluation.read_gap import ReadGap
from midspan_engine.repeats import Repeats, Source
from midspan_engine.workspace import Workspace

CAUSAL_WEIGHTS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
N_MATCHES = 8
"""Lengths of a match in the document that get a weight of their own; longer ones share the last."""
N_MATCHES_BESIDE = 12
"""The same of a match in other files."""
MAX_SLOTS = 12
"""Of a gap: a longer one would weigh more than what anybody is shown."""
POWERS = tuple(round(0.2 + 0.05 * n, 2) for n in range(33))
THRESHOLDS = (0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6)
_EM_ROUNDS = 80
"""By then the weights stand still to three digits."""

_INDICES = range(len(CAUSAL_WEIGHTS))

Floats = npt.NDArray[np.float64]


class Match(NamedTuple):
    """What one opinion is of one token."""

    length: int
    """Of the longest match; 0 for none."""
    repeated: float
    """Share of the matches that go on with this token."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One token of a true text."""

    own: Match
    """In the document."""
    beside: Match
    """In the other files of its workspace."""
    p: tuple[float, ...]
    """Its probability by canvas and encoder together, for each of CAUSAL_WEIGHTS."""


class Shown(msgspec.Struct, frozen=True):
    """What a threshold of confidence shows."""

    threshold: float
    shown: float
    """Share of all answers."""
    exact: float
    """Share of the shown ones."""


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """The fitted constants, by their names in infill_config.json, and what they give."""

    n_gaps: int
    n_slots: int
    causal_weight: float
    repeat_weights: tuple[float, ...]
    workspace_weights: tuple[float, ...]
    confidence_power: float
    nats: dict[str, float]
    """Nats a slot of held-out files by encoder's weight, repeats included."""
    exact: float
    shown: tuple[Shown, ...]


def calibrate(
    engine: Engine,
    cases: Sequence[Case],
    seen: Sequence[Case],
    watched: Callable[[Sequence[Case], str], Iterable[Case]],
) -> Calibration:
    """Fits on one-line gaps, the weights of other files on those of `seen` packages, which the engine was lent.

    `watched` wraps each loop over the cases, to show its progress. Raises InputError for a checkpoint that has no vote,
    or for gaps that hold none of its tokens.
    """
    if engine.infill.causal_weight == 0:
        raise InputError("this checkpoint has no vote to fit (causal_weight 0 in its infill_config.json)")
    slots = [slot for case in watched(cases, "reading true texts") for slot in read_slots(engine, case)]
    others = [slot for case in watched(seen, "reading beside other files") for slot in read_slots(engine, case)]
    if not slots or not others:
        raise InputError("there are no gaps to fit on: give another corpus with --data")
    own = [fit_weights([slot.own for slot in slots], _p(slots, index), N_MATCHES) for index in _INDICES]
    nats = [_nats(p) for _, p in own]
    best = min(_INDICES, key=nats.__getitem__)
    repeat_weights = own[best][0]
    workspace_weights, _ = fit_weights([slot.beside for slot in others], _p(others, best), N_MATCHES_BESIDE)
    fitted = msgspec.structs.replace(
        engine.infill,
        causal_weight=CAUSAL_WEIGHTS[best],
        repeat_weights=repeat_weights,
        workspace_weights=workspace_weights,
        confidence_power=1.0,
    )
    answers = [_answer(engine.with_infill(fitted), case) for case in watched(cases, "filling")]
    power = fit_power(answers)
    return Calibration(
        n_gaps=len(cases),
        n_slots=len(slots),
        causal_weight=CAUSAL_WEIGHTS[best],
        repeat_weights=repeat_weights,
        workspace_weights=workspace_weights,
        confidence_power=power,
        nats={str(weight): round(each, 4) for weight, each in zip(CAUSAL_WEIGHTS, nats, strict=True)},
        exact=sum(is_exact for _, is_exact in answers) / len(answers),
        shown=tuple(_shown(answers, power, threshold) for threshold in THRESHOLDS),
    )


def changed(infill: InfillConfig, fitted: Calibration) -> InfillConfig:
    """Returns a checkpoint's infill_config with the fitted constants."""
    return msgspec.structs.replace(
        infill,
        causal_weight=fitted.causal_weight,
        repeat_weights=fitted.repeat_weights,
        workspace_weights=fitted.workspace_weights,
        confidence_power=fitted.confidence_power,
    )


@torch.inference_mode()
def read_slots(engine: Engine, case: Case) -> list[Slot]:
    """Returns the first slots of a case's true text, the one that ends it included."""
    read = ReadGap.of(engine, case, case.truth)
    ids, prompt = read.ids[:MAX_SLOTS], read.prompt
    encoder_LV, place = read.encoder(len(ids)), range(len(ids))
    canvas_LV = read.canvas(list(place))[list(place), list(place)]
    beside = Source(*engine.workspaces.get(case.workspace, Workspace()).besides(case.file), ())
    end = engine.infill.blank_token_id
    assert end is not None, "configs with a vote are checked for it"
    repeats = Repeats(prompt.before, prompt.after, end=end, breaks=engine.breaks, weights=(), beside=beside)
    required = prompt.required[0]
    slots = []
    for n, token in enumerate(ids):
        both = [engine.rules.constrain(z_LV[n, None], required, True)[0] for z_LV in (canvas_LV, encoder_LV)]
        if both[0][token] == -torch.inf:
            break  # the true text is spelled in another way than the constraint allows
        canvas_V, encoder_V = (z_V.log_softmax(-1) for z_V in both)
        mixed = (((1 - w) * canvas_V + w * encoder_V).softmax(-1)[token] for w in CAUSAL_WEIGHTS)
        besides, own = (
            Match(length, float((following == token).mean()) if length else 0.0)
            for length, following in repeats.following(ids[:n])
        )
        slots.append(Slot(own, besides, tuple(map(float, mixed))))
        required = engine.rules.rest(required, token)
    return slots


def fit_weights(matches: Sequence[Match], p: Floats, n_lengths: int) -> tuple[tuple[float, ...], Floats]:
    """Returns the weights of an opinion by length of match, and the slots' probabilities with it."""
    lengths = np.array([min(match.length, n_lengths) for match in matches])
    repeated = np.array([match.repeated for match in matches])
    weights: list[float] = []
    for length in range(1, n_lengths + 1):
        of = lengths == length
        # where no slot has such a match, the next shorter one has to do
        weight = _mixing_weight(p[of], repeated[of]) if of.any() else weights[-1] if weights else 0.0
        weights.append(round(weight, 3))
    return tuple(weights), _mixed(matches, p, weights)


def _mixed(matches: Sequence[Match], p: Floats, weights: Sequence[float]) -> Floats:
    """Returns the probabilities of slots with an opinion mixed in."""
    shares = np.array([weights[min(match.length, len(weights)) - 1] if match.length else 0.0 for match in matches])
    mixed: Floats = (1 - shares) * p + shares * np.array([match.repeated for match in matches])
    return mixed


def _p(slots: Sequence[Slot], index: int) -> Floats:
    return np.array([slot.p[index] for slot in slots])


def _nats(p: Floats) -> float:
    return float(-np.log(np.maximum(p, 1e-9)).mean())


def fit_power(answers: Sequence[tuple[float, bool]]) -> float:
    """Returns the power of the probability of an answer that says best whether it is exact."""
    judged = [(p, is_exact) for p, is_exact in answers if 0.0 < p < 1.0]

    def surprise(power: float) -> float:
        return -sum(math.log(max(1e-6, p**power if is_exact else 1.0 - p**power)) for p, is_exact in judged)

    return min(POWERS, key=surprise)


def _mixing_weight(p: Floats, repeated: Floats) -> float:
    weight = 0.3
    for _ in range(_EM_ROUNDS):
        mixed = weight * repeated + (1 - weight) * p
        weight = float(np.mean(weight * repeated / np.maximum(mixed, 1e-12)))
    return min(weight, 0.99)


def _answer(engine: Engine, case: Case) -> tuple[float, bool]:
    filled = engine.fill(case.request(), received=time.perf_counter(), is_cancelled=lambda: False)
    if not filled.candidates:
        return 0.0, False
    best = filled.candidates[0]
    return best.confidence, best.text.rstrip() == case.truth.rstrip()


def _shown(answers: Sequence[tuple[float, bool]], power: float, threshold: float) -> Shown:
    shown = [is_exact for p, is_exact in answers if p > 0.0 and p**power >= threshold]
    return Shown(threshold, len(shown) / len(answers), sum(shown) / max(1, len(shown)))
