"""`midspan eval SUITE`: fills held-out gaps and prints a table and JSON."""

from __future__ import annotations

import json
from pathlib import Path

import click
import platformdirs
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from midspan_engine.engine import Engine
from midspan_engine.evaluation.cases import held_out_cases
from midspan_engine.evaluation.methods import Methods
from midspan_engine.evaluation.scores import Scored, judge, summarise
from midspan_engine.threads import cpu_threads

EMBEDDED = Path(__file__).parent.parent / "checkpoint"
_COLUMNS = ("exact", "similarity", "valid", "shown", "shown_exact", "shown_valid", "steps", "p50_ms")


@click.command(name="eval")
@click.argument("suite", type=click.Choice(["held-out"]))
@click.option("--checkpoint", type=click.Path(path_type=Path), default=EMBEDDED, help="Checkpoint folder.")
@click.option("--cases", "n_cases", default=300, show_default=True, help="Number of gaps.")
@click.option("--seed", default=0, show_default=True, help="Which gaps are cut.")
@click.option("--min-confidence", default=0.3, show_default=True, help="From which confidence an answer counts as shown.")
@click.option("--data", type=click.Path(path_type=Path), help="A corpus split (held.jsonl); default: the prepared one.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def command(
    suite: str, checkpoint: Path, n_cases: int, seed: int, min_confidence: float, data: Path | None, as_json: bool
) -> None:
    """Fill one-line gaps of held-out files, the length unknown, beside two baselines with the same weights."""
    path = data or Path(platformdirs.user_cache_dir("midspan")) / "corpus" / "held.jsonl"
    cases = held_out_cases(path, n_cases, seed)
    torch.set_num_threads(cpu_threads())
    methods = Methods(Engine.load(checkpoint))
    console = Console(stderr=True)
    scored: dict[str, list[Scored]] = {name: [] for name in methods.by_name}
    for case in track(cases, description="filling", console=console, transient=True):
        for name, method in methods.by_name.items():
            scored[name].append(judge(case, method(case)))
    results = {name: summarise(rows, min_confidence) for name, rows in scored.items()}
    if as_json:
        report = {"suite": suite, "length": "unknown", "min_confidence": min_confidence, "seed": seed, "methods": results}
        click.echo(json.dumps(report, indent=2))
    else:
        Console().print(_table(results, len(cases), min_confidence))


def _table(results: dict[str, dict[str, object]], n_cases: int, min_confidence: float) -> Table:
    table = Table(title=f"{n_cases} one-line gaps, length unknown; shown from confidence {min_confidence}")
    table.add_column("method")
    for column in _COLUMNS:
        table.add_column(column.replace("_", " "), justify="right")
    for name, result in results.items():
        cells = []
        for column in _COLUMNS:
            value = result[column]
            assert isinstance(value, float), "every column of the table is a figure"
            cells.append(f"{value:.1f}" if column in ("steps", "p50_ms") else f"{100 * value:.1f} %")
        table.add_row(name, *cells)
    return table
