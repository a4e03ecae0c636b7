"""What a filter says about the text of a candidate."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from midspan_server.context import Context


class Dropped(msgspec.Struct, frozen=True):
    """Says why a text must not be shown, in words that hold no source code."""

    reason: str


Filter = Callable[[str, Context], str | Dropped]
"""Takes the text of a candidate, with LF line ends, and where it is to stand."""
