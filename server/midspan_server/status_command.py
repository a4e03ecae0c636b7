"""`midspan status`: what the resident engine is and does. That none runs is a normal answer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from midspan_engine.protocol import EngineStatus
from midspan_server.configured import launch_of, user_settings, with_checkpoint, with_json
from midspan_server.engine_client import EngineClient
from midspan_server.excerpt import visible
from midspan_server.launch import Launch


@click.command("status")
@with_checkpoint
@with_json
def command(checkpoint: Path | None, as_json: bool) -> None:
    """What the resident engine is and does."""
    launch = launch_of(checkpoint, user_settings())
    status = asyncio.run(ask_status(launch))
    if as_json:
        click.echo(msgspec.json.encode({"engine": status, "socket": str(launch.socket), "log": str(launch.log)}))
    elif status is None:
        click.echo("No engine is running. It starts with the first fill, or with `midspan engine start`.")
    else:
        Console(highlight=False).print(status_table(status, launch))


async def ask_status(launch: Launch) -> EngineStatus | None:
    """Returns the state of the engine of a launch, None when none runs."""
    async with EngineClient(launch) as client:
        return await client.status()


def status_table(status: EngineStatus, launch: Launch) -> Table:
    """Returns the state of an engine as a table of names and values."""
    table = Table.grid(padding=(0, 2))
    rows = {
        "state": status.state if status.error is None else f"{status.state}: {status.error}",
        "model": status.checkpoint,
        "parameters": f"{status.n_parameters / 1e6:.1f} M" if status.n_parameters else "not loaded yet",
        "device": status.device or "not chosen yet",
        "languages": ", ".join(status.languages) or "any",
        "memory": f"{status.rss_bytes / 2**20:.0f} MiB",
        "clients": str(status.n_clients),
        "documents": str(status.n_documents),
        "fills": str(status.n_fills),
        "process": f"{status.pid}, version {status.version}",
        "socket": str(launch.socket),
        "log": str(launch.log),
    }
    for name, value in rows.items():
        table.add_row(Text(name, style="dim"), Text(visible(value), overflow="fold"))
    return table
