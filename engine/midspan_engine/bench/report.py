"""What `midspan bench` found, and how it is printed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from rich.console import Console
from rich.table import Table

from midspan_engine.bench.beside import Beside
from midspan_engine.bench.ceilings import Ceilings
from midspan_engine.bench.fills import CanvasCost, CarriedOn, Timing
from midspan_engine.bench.kernels import KERNEL_COLUMNS, KernelRow, kernel_cells
from midspan_engine.bench.keys import KeyTiming
from midspan_engine.footprint import Memory


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What `midspan bench --json` prints; None for sections that were not asked for."""

    device: str
    threads: int
    n_parameters: int
    cases: int
    methods: dict[str, Timing] | None = None
    canvas: CanvasCost | None = None
    carried_on: CarriedOn | None = None
    rows: dict[int, float] | None = None
    """Time of a decoder pass over so many rows, over that of one row."""
    keys: dict[str, KeyTiming] | None = None
    memory_mb: Memory | None = None
    transformers: Beside | None = None
    ceilings: Ceilings | None = None
    kernels: list[KernelRow] | None = None


def print_report(report: Report) -> None:
    """Prints every section that there is."""
    console = Console()
    if report.methods is not None:
        console.print(_methods(report, report.methods))
    for line in _sentences(report):
        console.print(line)
    if report.keys is not None:
        keys = ((name, str(key.n), f"{key.p50_ms:.1f}", f"{key.p90_ms:.1f}") for name, key in report.keys.items())
        title = "from key to suggestion, through midspan lsp"
        console.print(table(title, ("situation", "suggestions", "p50 ms", "p90 ms"), keys))
    if (memory := report.memory_mb) is not None:
        console.print(f"memory: engine {memory.engine:.0f} MB, front end {memory.front_end:.0f} MB")
    if report.transformers is not None:
        print_beside(console, report.transformers)
    if report.kernels is not None and report.ceilings is not None:
        console.print(kernel_table(report.kernels, report.ceilings))
        if all(row.triton_ms is None for row in report.kernels):
            console.print("Triton's kernels run on a GPU; these are the torch references, their inputs in the cache")


def _methods(report: Report, methods: dict[str, Timing]) -> Table:
    title = f"{report.device}, {report.threads} threads, {report.cases} one-line gaps, warm prefix"
    rows = (
        (name, f"{row.p50_ms:.1f}", f"{row.p90_ms:.1f}", f"{row.ratio:.2f}", f"{row.tokens_per_s:.0f}")
        for name, row in methods.items()
    )
    return table(title, ("method", "p50 ms", "p90 ms", "ratio of p50", "tokens/s"), rows)


def _sentences(report: Report) -> Iterable[str]:
    if (cost := report.canvas) is not None:
        yield (
            f"{cost.steps:.1f} decoder and {cost.encoder_steps:.1f} encoder passes over the gap of a fill, "
            f"{cost.decoder_share:.0%} of the time in the decoder, {cost.n_encoded:.1f} tokens encoded a fill"
        )
    if (carried := report.carried_on) is not None:
        yield (
            f"typed on while a canvas settles: {carried.n_carried} of {carried.n_keys} right keys went on from it, "
            f"{carried.passes:.1f} passes instead of {carried.passes_from_scratch:.1f} from scratch"
        )
    if report.rows is not None:
        rows = ", ".join(f"{n} rows {ratio:.2f}" for n, ratio in report.rows.items() if n > 1)
        yield f"a decoder pass over several rows, as a ratio to one row: {rows}"


def print_beside(console: Console, beside: Beside) -> None:
    """Prints this engine beside transformers."""
    if beside.note:
        console.print(f"transformers on the same weights: not measured, {beside.note}")
        return
    pairs = [(f"{name}, ms", pair) for name, pair in beside.ms.items()]
    if beside.peak_mb is not None:
        pairs.append(("peak memory of the process, MB", beside.peak_mb))
    rows = ((name, f"{pair.own:.1f}", f"{pair.transformers:.1f}", f"{pair.ratio:.2f}") for name, pair in pairs)
    title = "this engine beside transformers, the same weights"
    console.print(table(title, ("", "midspan", "transformers", "ratio"), rows))


def kernel_table(rows: Sequence[KernelRow], best: Ceilings) -> Table:
    """Returns the kernels with what they reach, without columns in which there is nothing."""
    title = f"kernels; a copy moves {best.gb_per_s:.0f} GB/s, a matrix product {best.tflop_per_s:.2f} TFLOP/s here"
    cells = [kernel_cells(row) for row in rows]
    kept = [index for index in range(len(KERNEL_COLUMNS)) if any(row[index] for row in cells)]
    return table(title, [KERNEL_COLUMNS[index] for index in kept], ([row[index] for index in kept] for row in cells))


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Returns a table whose columns but the first are numbers."""
    made = Table(title=title)
    for index, column in enumerate(columns):
        made.add_column(column, justify="right" if index else "left")
    for row in rows:
        made.add_row(*row)
    return made
