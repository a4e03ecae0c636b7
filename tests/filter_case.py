"""One way to put a text before a filter: `║` stands for the cursor."""

from __future__ import annotations

from midspan_server.context import Context, context_at
from midspan_server.filters import Dropped, Filter
from midspan_server.text import snapshot


def context_of(marked: str, language: str = "python") -> Context:
    return context_at(snapshot(marked.replace("║", "")), marked.index("║"), "automatic", language=language)


def reason_of(judge: Filter, marked: str, text: str) -> str | None:
    """Returns why a filter drops a text, None when it keeps it as it is; a text that is cut fails the test."""
    verdict = judge(text, context_of(marked))
    if isinstance(verdict, Dropped):
        return verdict.reason
    assert verdict == text
    return None
