"""What a one-line fill costs on this machine, beside the same weights run token by token.

Gaps are cut from this package's own source, so that anyone measures the same. The prefix is warm, as it is while
somebody types: the document was asked for one character earlier.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec
import torch

import midspan_engine
from midspan_engine.bench.timing import medians_ms
from midspan_engine.engine import Engine
from midspan_engine.errors import Cancelled
from midspan_engine.evaluation.cases import Case
from midspan_engine.evaluation.methods import Methods
from midspan_engine.evaluation.scores import percentile
from midspan_engine.protocol import SHOWN_CONFIDENCE, Draft, Fill, Filled, Stats
from midspan_engine.training.gaps import cut

ROWS = (1, 2, 4)
N_PASSES = 20
"""Enough for a median."""
SOURCES = ("config.py", "kv.py", "canvas.py", "tokens.py")
"""Files of this package that the gaps are cut from."""


class Timing(msgspec.Struct, frozen=True):
    """How long one method takes for a fill."""

    p50_ms: float
    p90_ms: float
    ratio: float
    """p50 over that of the baseline."""
    tokens_per_s: float
    """Tokens of all answers over the time of all fills."""


class CanvasCost(msgspec.Struct, frozen=True):
    """What a fill on the canvas consists of, on average."""

    steps: float
    """Decoder passes."""
    encoder_steps: float
    decoder_share: float
    n_encoded: float


class CarriedOn(msgspec.Struct, frozen=True):
    """What it saves to go on from a canvas that was left half-way, when the next key agrees with the draft."""

    n_keys: int
    """Keys that were right, and typed when the canvas had made half of its passes."""
    n_carried: int
    """Of them, those that agreed with the draft of that moment."""
    passes: float
    """Passes after such a key, on average."""
    passes_from_scratch: float


def own_cases(n_cases: int) -> list[Case]:
    """Cuts rest-of-line gaps from this package's own files, seeded."""
    rng = random.Random(0)
    cases: list[Case] = []
    folder = Path(midspan_engine.__file__).parent
    while len(cases) < n_cases:
        text = (folder / SOURCES[len(cases) % len(SOURCES)]).read_text(encoding="utf-8")
        gap = cut("rest_of_line", text, rng.randrange(200, len(text)), rng)
        if gap is not None and text[slice(*gap)].strip():
            start, end = gap
            cases.append(Case(f"bench-{len(cases)}", "rest_of_line", text[:start], text[start:end], text[end:]))
    return cases


def measure_fills(
    engine: Engine, cases: Sequence[Case], progress: Callable[[Sequence[Case]], Iterable[Case]]
) -> tuple[dict[str, Timing], CanvasCost]:
    """Times every case with each method, interleaved so that a busy moment hits all of them."""
    methods = Methods(engine)
    stats: list[Stats] = []
    times: dict[str, list[float]] = {"canvas": [], "canvas, as editors ask": [], "token by token": []}
    texts: dict[str, list[str]] = {name: [] for name in times}
    for case in cases[:3]:
        _fill(engine, case)
        methods.causal(case)
    for case in progress(cases):
        _fill(engine, Case(case.name, case.kind, case.prefix[:-1], "", case.suffix))
        filled, asked, causal = _filled(engine, case), _filled(engine, case, SHOWN_CONFIDENCE), methods.causal(case)
        stats.append(filled.stats)
        for name, ms, text in (
            ("canvas", filled.stats.ms, _text(filled)),
            ("canvas, as editors ask", asked.stats.ms, _text(asked)),
            ("token by token", causal.ms, causal.text),
        ):
            times[name].append(ms)
            texts[name].append(text)
    medians = {name: statistics.median(values) for name, values in times.items()}
    base = medians["token by token"]
    timings = {}
    for name, values in times.items():
        tokens_per_s = sum(map(methods.n_tokens, texts[name])) / sum(values) * 1e3
        timings[name] = Timing(medians[name], percentile(values, 0.9), medians[name] / base, tokens_per_s)
    cost = CanvasCost(
        steps=statistics.fmean(one.steps for one in stats),
        encoder_steps=statistics.fmean(one.encoder_steps for one in stats),
        decoder_share=sum(one.decoder_ms for one in stats) / sum(one.ms for one in stats),
        n_encoded=statistics.fmean(one.n_encoded for one in stats),
    )
    return timings, cost


def measure_carried_on(engine: Engine, cases: Iterable[Case]) -> CarriedOn:
    """Types the first character of what is suggested while the canvas is half-way, and once more from scratch."""
    passes: list[tuple[int, int]] = []
    n_keys = 0
    for case in cases:
        filled = _filled(engine, case)
        half = _n_passes(filled.stats) // 2
        if half and filled.candidates:
            n_keys += 1
            _leave(engine, case, half)
            typed = Case(case.name, case.kind, case.prefix + filled.candidates[0].text[0], "", case.suffix)
            carried, fresh = _fill(engine, typed), _fill(engine, typed)
            if carried.carried_steps:
                passes.append((_n_passes(carried), _n_passes(fresh)))
    n_carried = max(1, len(passes))
    return CarriedOn(n_keys, len(passes), sum(a for a, _ in passes) / n_carried, sum(b for _, b in passes) / n_carried)


def _leave(engine: Engine, case: Case, n_passes: int) -> None:
    """Begins to fill a case, and withdraws the request after so many passes."""
    drafts: list[Draft] = []
    request = Fill(id=0, document=case.name, parts=(case.prefix, case.suffix))
    with suppress(Cancelled):
        engine.fill(
            request,
            received=time.perf_counter(),
            is_cancelled=lambda: len(drafts) == n_passes,
            on_draft=drafts.append,
        )


def _n_passes(stats: Stats) -> int:
    return stats.steps + stats.encoder_steps


@torch.inference_mode()
def measure_rows(engine: Engine, case: Case) -> dict[int, float]:
    """Times decoder passes over 1, 2 and 4 rows of a canvas in turn; returns the ratios of the medians."""
    request = Fill(id=0, document="rows", parts=(case.prefix, case.suffix), max_tokens=engine.infill.gap_tokens)
    prompt = engine.prompt_for(request)
    cache, _ = engine.prefixes.encode(request.document, prompt.context)
    canvas_1C = torch.tensor([prompt.canvas.ids], device=engine.model.embed_tokens.weight.device)
    gap_slots = torch.tensor(prompt.canvas.gap_slots, device=canvas_1C.device)

    def logits(n_rows: int) -> torch.Tensor:
        return engine.model.logits(engine.model.decode(canvas_1C.expand(n_rows, -1), cache, None, gap_slots))

    runs = {str(n_rows): partial(logits, n_rows) for n_rows in ROWS}
    times = medians_ms(runs, canvas_1C.device, N_PASSES)
    return {n_rows: times[str(n_rows)] / times["1"] for n_rows in ROWS}


def _text(filled: Filled) -> str:
    return filled.candidates[0].text if filled.candidates else ""


def _fill(engine: Engine, case: Case, min_confidence: float = 0.0) -> Stats:
    return _filled(engine, case, min_confidence).stats


def _filled(engine: Engine, case: Case, min_confidence: float = 0.0) -> Filled:
    parts = (case.prefix, case.suffix)
    request = Fill(id=0, document=case.name, parts=parts, min_confidence=min_confidence)
    return engine.fill(request, received=time.perf_counter(), is_cancelled=lambda: False)
