"""The curve of a run: held-out losses by what was trained, as points and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec


class Held(msgspec.Struct, frozen=True):
    """Losses on held-out packages, nats a token."""

    causal: float
    quoted: float
    canvas: float


class Point(msgspec.Struct, frozen=True):
    """One line of curve.jsonl, as far as readers need it."""

    step: int
    positions: int
    held: Held


WIDTH, HEIGHT, MARGIN = 640, 320, 48
_LINES = {"causal": ("next token", "#1f77b4"), "quoted": ("quoted", "#2ca02c"), "canvas": ("canvas", "#d62728")}
_N_TICKS = 5


def read_curve(curve: Path) -> list[Point]:
    """Returns the points of a curve; of a stretch that was trained twice, after a kill, the later ones."""
    points: list[Point] = []
    if curve.exists():
        for line in curve.read_bytes().splitlines():
            point = msgspec.json.decode(line, type=Point)
            points = [earlier for earlier in points if earlier.step < point.step] + [point]
    return points


def draw_curve(points: Sequence[Point]) -> str:
    """Returns an SVG of the losses by million positions; only axes where there are no points."""
    losses: list[float] = [getattr(point.held, name) for point in points for name in _LINES] or [0.0]
    low, high = min(losses), max(max(losses), min(losses) + 1e-6)
    most = max((point.positions for point in points), default=1)

    def x(positions: float) -> float:
        return MARGIN + (WIDTH - 2 * MARGIN) * positions / most

    def y(loss: float) -> float:
        return HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * (loss - low) / (high - low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for tick in range(_N_TICKS + 1):
        loss, positions = low + (high - low) * tick / _N_TICKS, most * tick / _N_TICKS
        parts.append(f'<path d="M{MARGIN} {y(loss):.1f}H{WIDTH - MARGIN}" stroke="#ddd"/>')
        parts.append(f'<text x="{MARGIN - 6}" y="{y(loss) + 4:.1f}" text-anchor="end">{loss:.2f}</text>')
        where = f'x="{x(positions):.1f}" y="{HEIGHT - MARGIN + 16}" text-anchor="middle"'
        parts.append(f"<text {where}>{positions / 1e6:.1f}</text>")
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 12}" text-anchor="middle">million token positions</text>')
    parts.append(f'<text x="{MARGIN}" y="16">held-out nats a token</text>')
    for rank, (name, (label, colour)) in enumerate(_LINES.items()):
        places = " ".join(f"{x(point.positions):.1f},{y(getattr(point.held, name)):.1f}" for point in points)
        parts.append(f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts.append(
            f'<text x="{WIDTH - MARGIN - 70 * (2 - rank)}" y="16" text-anchor="end" fill="{colour}">{label}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"
