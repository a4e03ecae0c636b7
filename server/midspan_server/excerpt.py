"""A few numbered lines around a gap, the suggestion standing out, safe to print on a terminal."""

from __future__ import annotations

from rich.text import Text

SUGGESTION_STYLE = "bold black on green"

_CONTROLS = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"} | {0x7F: "\u2421"}
"""Control characters to their Unicode pictures: an escape sequence in a file must not reach the terminal."""
_LONGEST = 200
"""Characters shown of a line, or of either side of the gap; minified files have lines of megabytes."""
_REACH = 8000
"""Characters looked at on each side of the gap."""


def excerpt(text: str, offset: int, suggestion: str, *, n_around: int = 2) -> Text:
    """Returns the lines around `offset` of a text with LF line ends, with the suggestion inserted and highlighted.

    Up to `n_around` whole lines are shown before and after the changed ones.
    """
    *above, head = text[max(0, offset - _REACH) : offset].split("\n")[-n_around - 1 :]
    tail, *below = text[offset : offset + _REACH].split("\n")[: n_around + 1]
    changed = Text(_cut_left(head)).append(visible(suggestion), style=SUGGESTION_STYLE).append(_cut(tail))
    lines = [*map(Text, map(_cut, above)), *changed.split("\n", allow_blank=True), *map(Text, map(_cut, below))]
    first = text.count("\n", 0, offset) + 1 - len(above)
    numbered = [Text.assemble((f"{number:5} ", "dim"), line) for number, line in enumerate(lines, first)]
    return Text("\n").join(numbered)


def visible(text: str) -> str:
    """Returns text whose control characters, tabs and line ends excepted, are replaced by their pictures."""
    return text.translate(_CONTROLS)


def _cut(line: str) -> str:
    return visible(line) if len(line) <= _LONGEST else visible(line[:_LONGEST]) + "…"


def _cut_left(line: str) -> str:
    return visible(line) if len(line) <= _LONGEST else "…" + visible(line[-_LONGEST:])
