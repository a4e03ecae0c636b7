"""A report as a picture: quality by the length of the gap, or keys saved by the time an answer may take."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from midspan_engine.errors import InputError
from midspan_engine.evaluation.report import LENGTHS, Figures, Report, Typing

_SIZE = (8, 4.5)  # inches
_DPI = 150
_SHIFT = 0.06
"""Keeps the error bars of methods apart, in buckets."""


def require_plotting(path: Path) -> None:
    """Checks, before anything is measured, that a picture can be drawn. Raises InputError when not."""
    try:
        import matplotlib  # noqa: F401  # an extra that few installations have
    except ImportError:
        raise InputError("--plot needs matplotlib: run `pip install 'midspan[eval]'`, or leave --plot out") from None
    if not path.absolute().parent.is_dir():
        raise InputError(f"the folder of {path} does not exist; create it or choose another")
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise InputError(f"a picture's name ends in .png, .svg or .pdf, not as that of {path}")


def draw(report: Report, path: Path) -> None:
    """Writes the picture of a report."""
    from matplotlib.figure import Figure  # no pyplot: it would look for a screen

    groups = {"one line": report.methods, "several lines": report.multi_line}
    groups = {name: methods for name, methods in groups.items() if methods}
    figure = Figure(figsize=(_SIZE[0] * max(1, len(groups)), _SIZE[1]), layout="constrained")
    if report.typing is not None:
        _draw_typing(figure.subplots(), report.typing)
    elif groups:
        panels = figure.subplots(1, len(groups), squeeze=False)[0]
        for panel, (name, methods) in zip(panels, groups.items(), strict=True):
            _draw_lengths(panel, methods, f"{report.suite}: {name}" if len(groups) > 1 else report.suite)
    figure.savefig(path, dpi=_DPI)


def _draw_lengths(panel: Any, methods: Mapping[str, Figures], title: str) -> None:
    buckets = list(LENGTHS)
    for rank, (name, figures) in enumerate(methods.items()):
        column = "exact" if figures.passed is None else "passed"
        places, values, below, above = [], [], [], []
        for bucket, part in figures.by_length.items():
            value, (low, high) = getattr(part, column), part.intervals[column]
            places.append(buckets.index(bucket) + (rank - len(methods) / 2) * _SHIFT)
            values.append(value)
            below.append(value - low)
            above.append(high - value)
        panel.errorbar(
            places, values, yerr=(below, above), marker="o", markersize=4, capsize=2, linewidth=1, label=name
        )
        panel.set_ylabel("exact match" if column == "exact" else "pass@1")
    panel.set_xticks(range(len(buckets)), buckets)
    panel.set_xlim(-0.5, len(buckets) - 0.5)
    panel.set_xlabel("tokens of the true text")
    panel.set_ylim(bottom=0)
    panel.set_title(f"{title}, 95 % intervals", fontsize="medium")
    panel.legend(fontsize="small", frameon=False)


def _draw_typing(panel: Any, typing: Typing) -> None:
    accepts = sorted((one.ms, one.saved) for region in typing.regions for one in region.accepts)
    times, saved, total = [0.0], [0.0], 0
    for ms, keys in accepts:
        total += keys
        times.append(ms)
        saved.append(total / max(1, typing.keys))
    panel.step(times, saved, where="post")
    panel.axvline(typing.in_time_ms, color="grey", linewidth=0.8, linestyle=":")
    panel.set_xlabel("answers that came within so many milliseconds")
    panel.set_ylabel("keystrokes saved")
    panel.set_ylim(bottom=0)
    panel.set_title(f"{len(typing.regions)} regions typed through the language server", fontsize="medium")
