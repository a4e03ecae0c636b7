"""Ways to find the length of a gap, by the true length, as tables in Markdown: what the engine's README shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from midspan_engine.evaluation.report import Figures, Report


def length_tables(report: Report) -> str:
    """Returns a table for each group of gaps in a report: the share of exact answers, what they cost, a way a line."""
    has_both = bool(report.multi_line)
    groups = {"one-line gaps" if has_both else "gaps": report.methods, "gaps of several lines": report.multi_line}
    return "\n\n".join("\n".join(_lines(what, ways)) for what, ways in groups.items() if ways)


def _lines(what: str, ways: Mapping[str, Figures]) -> Iterator[str]:
    first = next(iter(ways.values()))
    buckets = [f"{bucket} (n={part.n})" for bucket, part in first.by_length.items()]
    columns = [f"{what}, exact by true length in tokens", f"all (n={first.n}), 95 %", *buckets, "passes", "p50 ms"]
    yield f"| {' | '.join(columns)} |"
    yield "|---|" + "---:|" * (len(columns) - 1)
    for name, figures in ways.items():
        low, high = figures.intervals["exact"]
        shares = [f"{100 * figures.exact:.1f} % ({100 * low:.1f}-{100 * high:.1f})"]
        shares += [f"{100 * part.exact:.1f} %" for part in figures.by_length.values()]
        yield f"| {' | '.join((name, *shares, f'{figures.steps:.1f}', f'{figures.p50_ms:.0f}'))} |"
