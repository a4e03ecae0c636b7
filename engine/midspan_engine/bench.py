"""`midspan bench`: what one completion costs on this machine, as ratios against baselines run side by side.

One-line gaps are cut from this package's own source, so that anyone measures the same. The prefix is warm, as it is
while somebody types: the document was asked for one character earlier.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import click
import msgspec
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from midspan_engine.config import embedded_checkpoint
from midspan_engine.cpu import cpu_threads
from midspan_engine.engine import Engine
from midspan_engine.evaluation.cases import Case
from midspan_engine.evaluation.methods import Methods
from midspan_engine.footprint import Memory, measure_memory
from midspan_engine.protocol import SHOWN_CONFIDENCE, Fill, Stats
from midspan_engine.training.gaps import cut

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


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What `midspan bench --json` prints."""

    device: str
    threads: int
    n_parameters: int
    cases: int
    methods: dict[str, Timing]
    canvas: CanvasCost
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
    methods, cost = measure(engine, cases, lambda items: track(items, "measuring", console=console, transient=True))
    report = Report(
        device=engine.device,
        threads=torch.get_num_threads(),
        n_parameters=engine.n_parameters,
        cases=len(cases),
        methods=methods,
        canvas=cost,
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
    timings = {name: Timing(medians[name], _p90(values), medians[name] / base) for name, values in times.items()}
    cost = CanvasCost(
        steps=statistics.fmean(one.steps for one in stats),
        encoder_steps=statistics.fmean(one.encoder_steps for one in stats),
        decoder_share=sum(one.decoder_ms for one in stats) / sum(one.ms for one in stats),
        n_encoded=statistics.fmean(one.n_encoded for one in stats),
    )
    return timings, cost


def _fill(engine: Engine, case: Case, min_confidence: float = 0.0) -> Stats:
    parts = (case.prefix, case.suffix)
    request = Fill(id=0, document=case.name, parts=parts, min_confidence=min_confidence)
    return engine.fill(request, received=time.perf_counter(), is_cancelled=lambda: False).stats


def _p90(values: Sequence[float]) -> float:
    return sorted(values)[math.ceil(0.9 * len(values)) - 1]


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
    console.print(f"memory: engine {memory.engine:.0f} MB, front end {memory.front_end:.0f} MB")
