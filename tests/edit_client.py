"""Edits as a client of the language server asks for them, and the answers of a scripted engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine_host import ScriptedHost
from lsp_client import URI, LspClient, at
from midspan_engine.protocol import Candidate, Fill, Filled

CODE = "a = 1\nb = old(a, 2)\nc = 3\n"
LINE = at(1, 0, 13)


def params(version: int = 1, span: object = LINE, **more: object) -> dict[str, Any]:
    return {"textDocument": {"uri": URI, "version": version}, "range": span, **more}


def answering(*gaps: str, confidence: float = 0.8) -> Callable[[Fill], Filled]:
    candidate = Candidate(gaps=gaps, confidence=confidence, confidences=(confidence,) * len(gaps))
    return lambda fill: Filled(id=fill.id, candidates=(candidate,))


async def begin(client: LspClient, text: str = CODE, capabilities: object = None, options: object = None) -> None:
    await client.initialize(capabilities, options)
    client.open(text)


async def held_edit(client: LspClient, host: ScriptedHost, **more: object) -> Any:
    """Starts an edit that the engine does not answer yet; returns its answer to come."""
    _, asked = client.start("midspan/edit", params(preset="refill", **more))
    await host.until(lambda: len(host.fills) == 1)
    return asked
