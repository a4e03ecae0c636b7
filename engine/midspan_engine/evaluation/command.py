"""`midspan eval SUITE`: fills held-out gaps and prints a table and JSON."""

from __future__ import annotations

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
from midspan_engine.evaluation.cases import held_out_cases
from midspan_engine.evaluation.methods import Methods
from midspan_engine.evaluation.report import Report
from midspan_engine.evaluation.scores import Scored, judge, summarise
from midspan_engine.training.corpus import cache_folder, split_path

_SHARES = ("exact", "similarity", "valid", "shown", "shown_exact", "shown_valid")


@click.command(name="eval")
@click.argument("suite", type=click.Choice(["held-out"]))
@click.option("--checkpoint", type=click.Path(path_type=Path), default=embedded_checkpoint, help="Checkpoint folder.")
@click.option("--cases", "n_cases", default=300, show_default=True, help="Number of gaps.")
@click.option("--seed", default=0, show_default=True, help="Which gaps are cut.")
@click.option(
    "--min-confidence", default=0.15, show_default=True, help="From which confidence an answer counts as shown."
)
@click.option("--data", type=click.Path(path_type=Path), help="A corpus split (held.jsonl); default: the prepared one.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def command(
    suite: str, checkpoint: Path, n_cases: int, seed: int, min_confidence: float, data: Path | None, as_json: bool
) -> None:
    """Fill one-line gaps of held-out files, the length unknown, beside two baselines with the same weights."""
    cases = held_out_cases(data or split_path(cache_folder(), "held"), n_cases, seed)
    torch.set_num_threads(cpu_threads())
    methods = Methods(Engine.load(checkpoint))
    console = Console(stderr=True)
    scored: dict[str, list[Scored]] = {name: [] for name in methods.by_name}
    for case in track(cases, description="filling", console=console, transient=True):
        for name, method in methods.by_name.items():
            scored[name].append(judge(case, method(case)))
    figures = {name: summarise(rows, min_confidence) for name, rows in scored.items()}
    report = Report(suite=suite, length="unknown", min_confidence=min_confidence, seed=seed, methods=figures)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(report)))
    else:
        Console().print(_table(report, len(cases)))


def _table(report: Report, n_cases: int) -> Table:
    table = Table(
        title=f"{n_cases} one-line gaps, length {report.length}; shown from confidence {report.min_confidence}"
    )
    table.add_column("method")
    for column in (*_SHARES, "steps", "p50 ms"):
        table.add_column(column.replace("_", " "), justify="right")
    for name, figures in report.methods.items():
        shares = [getattr(figures, column) for column in _SHARES]
        table.add_row(name, *(f"{share:.1%}" for share in shares), f"{figures.steps:.1f}", f"{figures.p50_ms:.1f}")
    return table
