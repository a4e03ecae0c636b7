"""A suggestion never repeats what follows the cursor.

The engine offers no such text: this filter counts its failures, which is why it drops and does not cut. What other
filters have cut, or what stands around a gap in its file and not in the request, can still make one.
"""

from __future__ import annotations

from midspan_engine.said_twice import says_again
from midspan_server.context import Context
from midspan_server.filters.verdict import Dropped

_REPEATS = Dropped("the suggestion repeats what follows the cursor")


def overlap(text: str, context: Context) -> str | Dropped:
    """Drops a text that ends with the rest of its line, with a word or sign of it, or with the lines that follow.

    Closing brackets and quotes alone are left to `balance` and `quotes`: one more of them may well be wanted.
    """
    return _REPEATS if says_again(context.line_prefix, text, context.suffix) else text
