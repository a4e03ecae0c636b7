"""The canvas while it settles: a live view on a terminal, one line a denoising step anywhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from midspan_engine.protocol import Draft, Slot
from midspan_server.excerpt import visible

_SURE_NATS = 0.1
"""Below this a slot is all but certain: exp(-0.1) puts 90 % on one token."""
_OPEN_NATS = 2.0
"""Above this at least seven tokens are in play (exp(2) = 7.4)."""


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
        text.append(visible(slot.text), style=slot_style(slot))
    return text


def slot_style(slot: Slot) -> str:
    """Returns the rich style of one slot."""
    if slot.pinned:
        return "dim"
    if slot.accepted:
        return "bold"
    if slot.entropy < _SURE_NATS:
        return "green"
    return "yellow" if slot.entropy < _OPEN_NATS else "red"


def _progress(draft: Draft) -> str:
    gap = [slot for slot in draft.slots if not slot.pinned]
    n_settled = sum(slot.accepted for slot in gap)
    return f"pass {draft.step}, {n_settled} of {len(gap)} settled"
