"""A part of a text that is to be denoised anew: what presets and holes come to."""

from __future__ import annotations

import msgspec


class Stretch(msgspec.Struct, frozen=True):
    """A part of a text with LF line ends: characters from `start` to `end` are hidden, in whole or in part."""

    start: int
    end: int
    single_line: bool = True
    lead: str = ""
    """What is written before the answer, if there is one: the line break and the blanks of a new line."""
