"""What completion costs on this machine: the engine beside baselines run side by side, and keys through a real server.

One-line gaps are cut from this package's own source, so that anyone measures the same. The prefix is warm, as it is
while somebody types: the document was asked for one character earlier.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import click
import msgspec
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from midspan_engine.bench_keys import KeyTiming, measure_keys
from midspan_engine.config import embedded_checkpoint
from midspan_engine.cpu import cpu_threads
from midspan_engine.engine import Engine
from midspan_engine.errors import Cancelled
from midspan_engine.evaluation.cases import Case
from midspan_engine.evaluation.methods import Methods
from midspan_engine.evaluation.scores import percentile
from midspan_engine.footprint import Memory, measure_memory
from midspan_engine.protocol import SHOWN_CONFIDENCE, Draft, Fill, Filled, Stats
from midspan_engine.training.gaps import cut

ROWS = (1, 2, 4)
N_PASSES = 20
"""Enough for a median; the first ones, in which kernels are chosen, do not reach it."""
SOURCES = ("config.py", "kv.py", "canvas.py", "tokens.py")
"""Files of this package that the gaps are cut from."""


class Timing(msgspec.Struct, frozen=True):
    """How long one method takes for a fill."""

    p50_ms: float
    p90_ms: float
    ratio: float
    """p50 over that of the baseline."""


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


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What `midspan bench --json` prints."""

    device: str
    threads: int
    n_parameters: int
    cases: int
    methods: dict[str, Timing]
    canvas: CanvasCost
    carried_on: CarriedOn
    rows: dict[int, float]
    """Time of a decoder pass over so many rows, over that of one row."""
    keys: dict[str, KeyTiming]
    memory_mb: Memory


@click.command(name="bench")
@click.option("--checkpoint", type=click.Path(path_type=Path), default=embedded_checkpoint, help="Checkpoint folder.")
@click.option("--cases", "n_cases", type=click.IntRange(min=1), default=60, show_default=True, help="Number of gaps.")
@click.option("--threads", default=None, type=int, help="CPU threads; default: as the resident engine takes.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def command(checkpoint: Path, n_cases: int, threads: int | None, as_json: bool) -> None:
    """Measure one-line fills with a warm prefix beside the same weights run token by token."""
    torch.set_num_threads(threads or cpu_threads())
    engine = Engine.load(checkpoint)
    console = Console(stderr=True)
    cases = own_cases(n_cases)

    def progress(cases: Sequence[Case]) -> Iterable[Case]:
        return track(cases, "measuring", console=console, transient=True)

    methods, cost = measure(engine, cases, progress)
    report = Report(
        device=engine.device,
        threads=torch.get_num_threads(),
        n_parameters=engine.n_parameters,
        cases=len(cases),
        methods=methods,
        canvas=cost,
        carried_on=measure_carried_on(engine, cases),
        rows=measure_rows(engine, cases[0]),
        keys=measure_keys(checkpoint, cases, progress),
        memory_mb=measure_memory(checkpoint, (cases[0].prefix, cases[0].suffix)),
    )
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(report)))
    else:
        _print(report)


def own_cases(n_cases: int) -> list[Case]:
    """Cuts rest-of-line gaps from this package's own files, seeded."""
    rng = random.Random(0)
    cases: list[Case] = []
    folder = Path(__file__).parent
    while len(cases) < n_cases:
        text = (folder / SOURCES[len(cases) % len(SOURCES)]).read_text(encoding="utf-8")
        gap = cut("rest_of_line", text, rng.randrange(200, len(text)), rng)
        if gap is not None and text[slice(*gap)].strip():
            start, end = gap
            cases.append(Case(f"bench-{len(cases)}", "rest_of_line", text[:start], text[start:end], text[end:]))
    return cases


def measure(
    engine: Engine, cases: Sequence[Case], progress: Callable[[Sequence[Case]], Iterable[Case]]
) -> tuple[dict[str, Timing], CanvasCost]:
    """Times every case with each method, interleaved so that a busy moment hits all of them."""
    methods = Methods(engine)
    stats: list[Stats] = []
    times: dict[str, list[float]] = {"canvas": [], "canvas, as editors ask": [], "token by token": []}
    for case in cases[:3]:
        _fill(engine, case)
        methods.causal(case)
    for case in progress(cases):
        _fill(engine, Case(case.name, case.kind, case.prefix[:-1], "", case.suffix))
        stats.append(_fill(engine, case))
        times["canvas"].append(stats[-1].ms)
        times["canvas, as editors ask"].append(_fill(engine, case, SHOWN_CONFIDENCE).ms)
        times["token by token"].append(methods.causal(case).ms)
    medians = {name: statistics.median(values) for name, values in times.items()}
    base = medians["token by token"]
    timings = {
        name: Timing(medians[name], percentile(values, 0.9), medians[name] / base) for name, values in times.items()
    }
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
    times: dict[int, list[float]] = {n_rows: [] for n_rows in ROWS}
    for _ in range(N_PASSES):
        for n_rows in ROWS:
            began = time.perf_counter()
            z_BGV = engine.model.logits(engine.model.decode(canvas_1C.expand(n_rows, -1), cache, None, gap_slots))
            float(z_BGV[-1, -1, -1])  # waits for an accelerator
            times[n_rows].append(time.perf_counter() - began)
    one = statistics.median(times[1])
    return {n_rows: statistics.median(values) / one for n_rows, values in times.items()}


def _fill(engine: Engine, case: Case, min_confidence: float = 0.0) -> Stats:
    return _filled(engine, case, min_confidence).stats


def _filled(engine: Engine, case: Case, min_confidence: float = 0.0) -> Filled:
    parts = (case.prefix, case.suffix)
    request = Fill(id=0, document=case.name, parts=parts, min_confidence=min_confidence)
    return engine.fill(request, received=time.perf_counter(), is_cancelled=lambda: False)


def _print(report: Report) -> None:
    table = Table(title=f"{report.device}, {report.threads} threads, {report.cases} one-line gaps, warm prefix")
    for column in ("method", "p50 ms", "p90 ms", "ratio of p50"):
        table.add_column(column, justify="left" if column == "method" else "right")
    for name, row in report.methods.items():
        table.add_row(name, f"{row.p50_ms:.1f}", f"{row.p90_ms:.1f}", f"{row.ratio:.2f}")
    cost, memory = report.canvas, report.memory_mb
    console = Console()
    console.print(table)
    console.print(
        f"{cost.steps:.1f} decoder and {cost.encoder_steps:.1f} encoder passes over the gap of a fill, "
        f"{cost.decoder_share:.0%} of the time in the decoder, "
        f"{cost.n_encoded:.1f} tokens encoded a fill"
    )
    carried = report.carried_on
    console.print(
        f"typed on while a canvas settles: {carried.n_carried} of {carried.n_keys} right keys went on from it, "
        f"{carried.passes:.1f} passes instead of {carried.passes_from_scratch:.1f} from scratch"
    )
    rows = ", ".join(f"{n} rows {ratio:.2f}" for n, ratio in report.rows.items() if n > 1)
    console.print(f"a decoder pass over several rows, as a ratio to one row: {rows}")
    keys = Table(title="from key to suggestion, through midspan lsp")
    for column in ("situation", "suggestions", "p50 ms", "p90 ms"):
        keys.add_column(column, justify="left" if column == "situation" else "right")
    for name, key in report.keys.items():
        keys.add_row(name, str(key.n), f"{key.p50_ms:.1f}", f"{key.p90_ms:.1f}")
    console.print(keys)
    console.print(f"memory: engine {memory.engine:.0f} MB, front end {memory.front_end:.0f} MB")
