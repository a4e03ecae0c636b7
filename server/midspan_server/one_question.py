"""One question to the engine from a command, with something to look at until the answer comes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from rich.console import Console

from midspan_engine.protocol import Draft, Fill, Filled
from midspan_server.engine_client import EngineClient
from midspan_server.launch import Launch
from midspan_server.terminal_canvas import watching


def ask(launch: Launch, request: Fill, command: str) -> Filled:
    """Returns the engine's answer to a command of this name, with something to look at on stderr until it comes."""
    console = Console(stderr=True)
    if request.watch:
        with watching(console) as show:
            return asyncio.run(_ask_engine(launch, request, command, show))
    # A first fill waits for the model to be loaded.
    with console.status("waiting for the engine") if console.is_terminal else contextlib.nullcontext():
        return asyncio.run(_ask_engine(launch, request, command))


async def _ask_engine(
    launch: Launch, request: Fill, command: str, on_draft: Callable[[Draft], None] | None = None
) -> Filled:
    """Returns the answer of the engine of a launch, which is started if none runs."""
    async with EngineClient(launch, name=command) as client:
        return await client.fill(request, on_draft)
