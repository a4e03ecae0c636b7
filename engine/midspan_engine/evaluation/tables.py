"""A report as tables for a terminal: a column for each method, a line for each figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.table import Table

from midspan_engine.evaluation.calibration import Calibration
from midspan_engine.evaluation.report import Figures, Report, Typing
from midspan_engine.evaluation.signals import Signal

_SHARES = {
    "passed": "pass@1",
    "passed_early": "pass@1 at 150 ms",
    "exact": "exact",
    "exact_early": "exact at 150 ms",
    "similarity": "similarity",
    "valid": "file valid",
    "shown": "shown",
    "shown_exact": "exact of shown",
    "shown_right": "right of shown",
    "shown_valid": "file valid of shown",
    "quarter_right": "right of surest 25 %",
}
_COSTS = {"steps": "steps", "p50_step_ms": "ms a step", "p50_ms": "p50 ms", "p90_ms": "p90 ms"}


def tables(report: Report) -> Iterator[Table]:
    """Yields the tables of a report."""
    has_both = bool(report.multi_line)
    for what, methods in (("one-line gaps" if has_both else "gaps", report.methods), ("lines", report.multi_line)):
        if methods:
            yield _overview(report, what, methods)
    if report.typing is not None:
        yield _typing(report.typing)


def _overview(report: Report, what: str, methods: Mapping[str, Figures]) -> Table:
    n = next(iter(methods.values())).n
    title = f"{report.suite}: {n} {what}, length {report.length}; shown from confidence {report.min_confidence}"
    table = Table(title=f"{title}; 95 % intervals")
    table.add_column("")
    for name in methods:
        table.add_column(name, justify="right")
    for column, label in _SHARES.items():
        if any(getattr(figures, column) is not None for figures in methods.values()):
            table.add_row(label, *(_share(figures, column) for figures in methods.values()))
    for column, label in _COSTS.items():
        costs = (getattr(figures, column) for figures in methods.values())
        table.add_row(label, *(f"{cost:.1f}" if cost else "" for cost in costs))
    for by, unit in (("by_length", "tokens"), ("by_kind", "")):
        first: dict[str, Figures] = getattr(next(iter(methods.values())), by)
        column = next(name for name in ("passed", "exact") if all(getattr(f, name) is not None for f in first.values()))
        table.add_section()
        for key, part in first.items():
            label = f"{_SHARES[column]}, {key.replace('_', ' ')} {unit}".rstrip() + f" (n={part.n})"
            table.add_row(label, *(_share(getattr(figures, by)[key], column) for figures in methods.values()))
    return table


def _share(figures: Figures, column: str) -> str:
    value = getattr(figures, column)
    if value is None:
        return ""
    interval = figures.intervals.get(column)
    spread = f" [dim]{interval[0]:.0%}-{interval[1]:.0%}[/]" if interval else ""
    return f"{value:.1%}{spread}"


def _typing(typing: Typing) -> Table:
    table = Table(title=f"{len(typing.regions)} regions typed through the language server, default settings")
    table.add_column("")
    table.add_column("figure", justify="right")
    table.add_column("95 %", justify="right")
    rows = (
        ("keys by hand", f"{typing.keys}", None),
        ("keystrokes saved", f"{typing.saved:.1%}", typing.saved_interval),
        (f"the same without answers after {typing.in_time_ms:.0f} ms", f"{typing.saved_in_time:.1%}", None),
        ("requests", f"{typing.requests}", None),
        ("suggestions shown", f"{typing.shown}", None),
        ("accepted, whole or in part", f"{typing.accepted}", None),
        ("precision", f"{typing.precision:.1%}", typing.precision_interval),
        ("p50 ms of an answer", f"{typing.p50_ms:.0f}", None),
        ("p90 ms of an answer", f"{typing.p90_ms:.0f}", None),
    )
    for what, figure, interval in rows:
        table.add_row(what, figure, f"{interval[0]:.1%}-{interval[1]:.1%}" if interval else "")
    return table


def calibration_table(fitted: Calibration) -> Table:
    """Returns the table of a calibration."""
    table = Table(title=f"{fitted.n_gaps} gaps, {fitted.n_slots} slots, {fitted.exact:.1%} exact")
    for name in ("shown from confidence", "shown", "exact of shown"):
        table.add_column(name, justify="right")
    for row in fitted.shown:
        table.add_row(f"{row.threshold:.2f}", f"{row.shown:.1%}", f"{row.exact:.1%}")
    nats = ", ".join(f"{value:.3f} at {weight}" for weight, value in fitted.nats.items())
    table.caption = "\n".join(
        (
            f"causal_weight {fitted.causal_weight} (nats a slot: {nats})",
            f"repeat_weights {list(fitted.repeat_weights)}",
            f"workspace_weights {list(fitted.workspace_weights)}",
            f"confidence_power {fitted.confidence_power}",
        )
    )
    return table


def signals_table(found: Sequence[Signal]) -> Table:
    """Returns the table of what tells whether an answer is right."""
    table = Table(title="which answers are exact, told by", caption="fitted on nine files of ten, judged on the tenth")
    for name in ("signal", "nats an answer", "area under ROC"):
        table.add_column(name, justify="left" if name == "signal" else "right")
    for each in found:
        table.add_row(each.name, f"{each.nats:.4f}", f"{each.area:.3f}")
    return table
