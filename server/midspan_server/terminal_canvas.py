"""The canvas while it settles: a live view on a terminal, one line a denoising step anywhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from midspan_engine.protocol import Draft
from midspan_server.drafts import Kind, kind_of
from midspan_server.excerpt import visible

_STYLES: dict[Kind, str] = {
    "pin": "dim",
    "accepted": "bold",
    "sure": "green",
    "open": "yellow",
    "unsure": "red",
    "blank": "",
}
"""In the words of rich."""


@contextmanager
def watching(console: Console) -> Iterator[Callable[[Draft], None]]:
    """Yields the function that shows each draft; the last canvas stays on the screen."""
    if not console.is_terminal:
        yield lambda draft: console.print(draft_line(draft), highlight=False, soft_wrap=True)
        return
    # Redrawn on every draft, not by a timer: a step of a small model is shorter than any sensible refresh period.
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        yield lambda draft: live.update(draft_panel(draft), refresh=True)


def draft_panel(draft: Draft) -> RenderableType:
    """Returns the canvas as a frame with the step in its title."""
    return Panel(canvas_text(draft), title=_progress(draft), title_align="left", border_style="dim")


def draft_line(draft: Draft) -> Text:
    """Returns one line of plain text: step, settled slots, and the gap with its line breaks escaped."""
    gap = "".join(slot.text for slot in draft.slots if not slot.pinned)
    return Text(f"{_progress(draft)}: {gap!r}")


def canvas_text(draft: Draft) -> Text:
    """Returns all slots in order: pins dimmed, accepted slots bold, the others coloured by entropy."""
    text = Text()
    for slot in draft.slots:
        text.append(visible(slot.text), style=_STYLES[kind_of(slot)])
    return text


def _progress(draft: Draft) -> str:
    kinds = [kind for kind in map(kind_of, draft.slots) if kind not in ("pin", "blank")]
    return f"pass {draft.step}, {kinds.count('accepted')} of {len(kinds)} settled"
