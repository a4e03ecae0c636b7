"""Fits the constants of a checkpoint's vote and of its confidence on held-out code that no suite tests on.

The true text of each gap is read slot by slot, as canvas and encoder see it when all before it is right: that gives the
encoder's weight and, by expectation maximisation, the weights of the repeats. Whole fills then give the power that
makes confidences come true, by maximum likelihood.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt
import torch

from midspan_engine.causal_reader import CausalReader
from midspan_engine.config import InfillConfig
from midspan_engine.engine import Engine
from midspan_engine.errors import InputError
from midspan_engine.evaluation.cases import Case
from midspan_engine.prompt import quote
from midspan_engine.protocol import ONE_LINE_TOKENS, Fill
from midspan_engine.repeats import Repeats

CAUSAL_WEIGHTS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
N_MATCHES = 8
"""Lengths of a match that get a weight of their own; longer ones share the last."""
MAX_SLOTS = 12
"""Of a gap: a longer one would weigh more than what anybody is shown."""
POWERS = tuple(round(0.2 + 0.05 * n, 2) for n in range(33))
THRESHOLDS = (0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6)
_EM_ROUNDS = 80
"""By then the weights stand still to three digits."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Slot:
    """One token of a true text."""

    n_match: int
    """Length of the longest match in the document, at most N_MATCHES; 0 for none."""
    repeated: float
    """Share of the matches that go on with this token."""
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
    confidence_power: float
    nats: dict[str, float]
    """Nats a slot by encoder's weight, repeats included."""
    exact: float
    shown: tuple[Shown, ...]


def calibrate(
    engine: Engine, cases: Sequence[Case], watched: Callable[[Sequence[Case], str], Iterable[Case]]
) -> Calibration:
    """Fits on one-line gaps; `watched` wraps each loop over the cases, to show its progress.

    Raises InputError for a checkpoint that has no vote, or for gaps that hold none of its tokens.
    """
    if engine.infill.causal_weight == 0:
        raise InputError("this checkpoint has no vote to fit (causal_weight 0 in its infill_config.json)")
    slots = [slot for case in watched(cases, "reading true texts") for slot in read_slots(engine, case)]
    if not slots:
        raise InputError("there are no gaps to fit on: give another corpus with --data")
    fits = [fit_repeats(slots, index) for index in range(len(CAUSAL_WEIGHTS))]
    best = min(range(len(fits)), key=lambda index: fits[index][1])
    fitted = msgspec.structs.replace(
        engine.infill, causal_weight=CAUSAL_WEIGHTS[best], repeat_weights=fits[best][0], confidence_power=1.0
    )
    other = Engine(engine.model, engine.tokens, fitted, engine.generation)
    answers = [_answer(other, case) for case in watched(cases, "filling")]
    power = fit_power(answers)
    return Calibration(
        n_gaps=len(cases),
        n_slots=len(slots),
        causal_weight=CAUSAL_WEIGHTS[best],
        repeat_weights=fits[best][0],
        confidence_power=power,
        nats={str(weight): round(fit[1], 4) for weight, fit in zip(CAUSAL_WEIGHTS, fits, strict=True)},
        exact=sum(is_exact for _, is_exact in answers) / len(answers),
        shown=tuple(_shown(answers, power, threshold) for threshold in THRESHOLDS),
    )


def changed(infill: InfillConfig, fitted: Calibration) -> InfillConfig:
    """Returns a checkpoint's infill_config with the fitted constants."""
    return msgspec.structs.replace(
        infill,
        causal_weight=fitted.causal_weight,
        repeat_weights=fitted.repeat_weights,
        confidence_power=fitted.confidence_power,
    )


@torch.inference_mode()
def read_slots(engine: Engine, case: Case) -> list[Slot]:
    """Returns the first slots of a case's true text, the one that ends it included."""
    infill, tokens, model = engine.infill, engine.tokens, engine.model
    assert infill.blank_token_id is not None, "configs with a vote are checked for it"
    request = Fill(id=0, document=case.name, parts=(case.prefix, case.suffix))
    prompt = engine.prompt_for(request, n_gap=ONE_LINE_TOKENS)
    required, gap = prompt.required[0], prompt.canvas.gaps[0]
    ids = [*tokens.encode(required.decode() + case.truth), infill.blank_token_id][: min(MAX_SLOTS, len(gap))]
    cache, _ = engine.prefixes.encode(case.name, prompt.context)
    pinned = prompt.canvas.ids
    left = quote(list(pinned[: gap.start]), [t for t in pinned[gap.stop :] if t != tokens.pad_token_id], infill)
    encoder_LV = CausalReader(model, cache).logits(left + ids[:-1], len(left) - 1)
    rows_LC = torch.tensor([pinned] * len(ids))
    known_LC = torch.ones_like(rows_LC, dtype=torch.bool)
    known_LC[:, gap.start : gap.stop] = False
    for n in range(1, len(ids)):
        rows_LC[n, gap.start : gap.start + n] = torch.tensor(ids[:n])
        known_LC[n, gap.start : gap.start + n] = True
    hidden_LCH = model.decode(rows_LC, cache, model.embed(rows_LC) * known_LC[..., None])
    place = torch.arange(len(ids))
    canvas_LV = model.logits(hidden_LCH[place, gap.start + place])
    repeats = Repeats(prompt.before, prompt.after, end=infill.blank_token_id, breaks=engine.breaks, weights=(0.0,))
    slots = []
    for n, token in enumerate(ids):
        both = [engine.rules.constrain(z_LV[n, None], required, True)[0] for z_LV in (canvas_LV, encoder_LV)]
        if both[0][token] == -torch.inf:
            break  # the true text is spelled in another way than the constraint allows
        canvas_V, encoder_V = (z_V.log_softmax(-1) for z_V in both)
        mixed = (((1 - w) * canvas_V + w * encoder_V).softmax(-1)[token] for w in CAUSAL_WEIGHTS)
        length, following = repeats.following(ids[:n])
        repeated = float((following == token).mean()) if length else 0.0
        slots.append(Slot(min(length, N_MATCHES), repeated, tuple(map(float, mixed))))
        required = engine.rules.rest(required, token)
    return slots


def fit_repeats(slots: Sequence[Slot], index: int) -> tuple[tuple[float, ...], float]:
    """Returns the repeats' weights by length of match and the nats a slot with them, for one of CAUSAL_WEIGHTS."""
    p = np.array([slot.p[index] for slot in slots])
    repeated, n_match = np.array([slot.repeated for slot in slots]), np.array([slot.n_match for slot in slots])
    weights: list[float] = []
    for length in range(1, N_MATCHES + 1):
        of = n_match == length
        # where no slot has such a match, the next shorter one has to do
        weight = _mixing_weight(p[of], repeated[of]) if of.any() else weights[-1] if weights else 0.0
        p[of] = (1 - weight) * p[of] + weight * repeated[of]
        weights.append(round(weight, 3))
    return tuple(weights), float(-np.log(np.maximum(p, 1e-9)).mean())


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
    request = Fill(id=0, document=case.name, parts=(case.prefix, case.suffix))
    filled = engine.fill(request, received=time.perf_counter(), is_cancelled=lambda: False)
    if not filled.candidates:
        return 0.0, False
    best = filled.candidates[0]
    return best.confidence, best.text.rstrip() == case.truth.rstrip()


def _shown(answers: Sequence[tuple[float, bool]], power: float, threshold: float) -> Shown:
    shown = [is_exact for p, is_exact in answers if p > 0.0 and p**power >= threshold]
    return Shown(threshold, len(shown) / len(answers), sum(shown) / max(1, len(shown)))
