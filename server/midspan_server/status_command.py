"""`midspan status`: what the resident engine is and does. That none runs is a normal answer."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from midspan_engine.protocol import ClientStatus, EngineStatus
from midspan_server.configured import launch_of, user_settings, with_checkpoint, with_json
from midspan_server.engine_client import EngineClient
from midspan_server.excerpt import visible
from midspan_server.launch import Launch

OWN_NAME = "midspan status"
QUIET_S = 30.0
"""A loading that gets no further for so long is pointed out. A choice: the longest step, the import of torch, takes
seconds; a disk on the network may take longer.
"""

_WIDEST = 10_000
"""Columns, more than two paths of the longest kind take."""


@click.command("status")
@with_checkpoint
@with_json
def command(checkpoint: Path | None, as_json: bool) -> None:
    """Show what the resident engine is and does: model, memory, clients, why suggestions were withheld."""
    launch = launch_of(checkpoint, user_settings())
    status = asyncio.run(ask_status(launch))
    if as_json:
        click.echo(msgspec.json.encode({"engine": status, "socket": str(launch.socket), "log": str(launch.log)}))
    elif status is None:
        click.echo("No engine is running. It starts with the first fill, or with `midspan engine start`.")
    else:
        # Into a pipe go whole lines: what is cut into pieces cannot be searched or copied.
        width = None if sys.stdout.isatty() else _WIDEST
        Console(highlight=False, width=width).print(status_table(status, launch))


async def ask_status(launch: Launch) -> EngineStatus | None:
    """Returns the state of the engine of a launch, None when none runs."""
    async with EngineClient(launch, name=OWN_NAME) as client:
        return await client.status()


def status_table(status: EngineStatus, launch: Launch) -> Table:
    """Returns the state of an engine as a table of names and values."""
    table = Table.grid(padding=(0, 2))
    silences = (reason for client in status.clients for reason in client.report.silences)
    rows = {
        "state": _state(status),
        "model": status.checkpoint,
        "parameters": f"{status.n_parameters / 1e6:.1f} M" if status.n_parameters else "not loaded yet",
        "device": status.device or "not chosen yet",
        "languages": ", ".join(status.languages) or "any",
        "memory": _memory(status),
        "weights": status.weights or "unknown",
        "budget": status.budget or "not counted yet",
        "clients": "\n".join(map(_client, status.clients)),
        "clients that left": "\n".join(_gone(*each) for each in sorted(status.gone.items())) or "none",
        "documents": f"{status.n_documents}, whose caches take {_mib(status.cache_bytes)}",
        "other files": f"{status.n_files} of the open workspaces, searched for what is repeated",
        "fills": f"{status.n_fills}, {status.n_waiting} waiting" + _counts(status.counts),
        "last silences": "\n".join(dict.fromkeys(silences)) or "none",
        "last failure": status.last_failure or "none",
        "process": f"{status.pid}, version {status.version}, up for {_duration(status.uptime_s)}",
        "leaves": f"after {_duration(status.idle_s)} without a fill",
        "socket": str(launch.socket),
        "log": str(launch.log),
    }
    for name, value in rows.items():
        table.add_row(Text(name, style="dim"), Text(visible(value), overflow="fold"))
    return table


def _state(status: EngineStatus) -> str:
    if status.error is not None:
        return f"{status.state}: {status.error}"
    if status.state != "loading":
        return status.state
    share, quiet_s = f"loading, {status.progress:.0%}", status.loading_quiet_s
    if quiet_s < QUIET_S:
        return share
    return f"{share}, no further for {_duration(quiet_s)}; if it hangs, `midspan engine stop` ends it"


def _memory(status: EngineStatus) -> str:
    on_device = f", and {_mib(status.device_bytes)} on {status.device}" if status.device_bytes else ""
    return _mib(status.rss_bytes) + on_device


def _client(client: ClientStatus) -> str:
    process = f"process {client.pid}, " if client.pid else ""
    fills = f"{client.n_fills} fills, {client.n_waiting} waiting"
    counts = _counts(client.report.counts)
    return f"{client.name or 'unnamed'}: {process}for {_duration(client.connected_s)}, {fills}{counts}"


def _gone(name: str, counts: dict[str, int]) -> str:
    return f"{name or 'unnamed'}: {_counts(counts).removeprefix(', ')}"


def _counts(counts: dict[str, int]) -> str:
    return "".join(f", {n} {name}" for name, n in sorted(counts.items()))


def _mib(n_bytes: int) -> str:
    return f"{n_bytes / 2**20:.0f} MiB"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
