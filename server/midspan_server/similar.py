"""Windows of other open files that share names with the place of the cursor."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence

from midspan_server.text import Snapshot

N_LINES = 20
"""Lines of a window; they overlap by half. Chosen; Copilot's are of 60, for prompts of 8,192 tokens."""
BLOCK_LINES = 10
"""The place of a cursor is told by blocks of so many lines, so that it stays the same while one types. Chosen."""

LONGEST_LINE = 1000
"""Characters of a line that is read: a longer one is data or minified, and would hold up the loop. Chosen."""

_NAME = re.compile(r"[^\W\d]\w{2,}")


def similar(here: Snapshot, line: int, others: Sequence[Snapshot], budget: int, deadline_s: float) -> str:
    """Returns the windows that share most names by Jaccard's measure, the best one last, within so many characters.

    What has been found at the deadline, a time of `time.perf_counter`, counts.
    """
    names = _names_around(here, line)
    scored: list[tuple[float, str]] = []
    for window in (window for other in others for window in _windows(other)):
        if time.perf_counter() > deadline_s:
            break
        own = frozenset(_NAME.findall(window))
        if shared := len(names & own):
            scored.append((shared / len(names | own), window))
    text = ""
    for _, window in sorted(scored, key=lambda each: -each[0]):
        if len(window) + len(text) <= budget:
            text = window + text
    return text


def lines_of(snapshot: Snapshot, first: int, last: int) -> str:
    """Returns lines of a snapshot, from `first` up to `last`, with LF ends and a blank line behind; those that are too
    long are left out.
    """
    spans = (snapshot.line_span(line) for line in range(max(first, 0), min(last, len(snapshot.lines))))
    lines = (snapshot.text[start:end] for start, end in spans if end - start <= LONGEST_LINE)
    return "\n".join(lines).strip("\n") + "\n\n"


def _names_around(snapshot: Snapshot, line: int) -> frozenset[str]:
    """Returns the names around a line, that line left out: it changes with every key."""
    first = line - line % BLOCK_LINES
    around = lines_of(snapshot, first - BLOCK_LINES, line) + lines_of(snapshot, line + 1, first + BLOCK_LINES)
    return frozenset(_NAME.findall(around))


def _windows(snapshot: Snapshot) -> Iterator[str]:
    for first in range(0, len(snapshot.lines), N_LINES // 2):
        yield lines_of(snapshot, first, first + N_LINES)
