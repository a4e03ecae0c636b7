"""`midspan engine start|stop`: the resident engine by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from midspan_engine.commands import WEIGHTS
from midspan_engine.errors import CheckpointError, EngineError, EngineUnavailable, InputError
from midspan_engine.protocol import EngineStatus, idle_seconds
from midspan_server.configured import launch_of, user_settings, with_checkpoint, with_json
from midspan_server.engine_client import EngineClient
from midspan_server.launch import IDLE_MINUTES, Launch

_LOAD_TIMEOUT_S = 600.0
"""Patience for a checkpoint to load: 52 GB of bf16 weights take minutes from a disk of 200 MB/s."""
_POLL_S = 0.1


@click.group("engine")
def command() -> None:
    """Start or stop the resident engine by hand."""


@command.command("start")
@with_checkpoint
@click.option(
    "--idle-minutes",
    type=click.FloatRange(min=0, min_open=True),
    help=f"Exit after so long without a fill; {IDLE_MINUTES:.0f} by default. A running engine takes it too.",
)
@click.option(
    "--weights",
    type=click.Choice(WEIGHTS),
    help="Hold the experts of a large model as stored, or packed into 8 or 4 bits. auto packs what would not fit.",
)
@with_json
def start(checkpoint: Path | None, idle_minutes: float | None, weights: str | None, as_json: bool) -> None:
    """Start the engine and wait until its model is loaded."""
    if idle_minutes is not None:
        idle_seconds(idle_minutes)
    launch = msgspec.structs.replace(launch_of(checkpoint, user_settings()), weights=weights)
    columns = TextColumn("loading the model"), BarColumn(), TaskProgressColumn()
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("", total=1.0)
        told = ""

        def show(status: EngineStatus) -> None:
            nonlocal told
            progress.update(bar, completed=status.progress)
            if status.budget and not told and not as_json:
                # before the weights are read, if they take long: who sees that it is too much can stop it
                told = f"Its memory: {status.budget}."
                progress.console.print(told, highlight=False, soft_wrap=True)

        status = asyncio.run(_start(launch, idle_minutes, show))
        show(status)
    if as_json:
        click.echo(msgspec.json.encode({"engine": status}))
    else:
        click.echo(f"The engine is {status.state}: process {status.pid}, {status.checkpoint} on {status.device}.")


@command.command("stop")
@with_checkpoint
@with_json
def stop(checkpoint: Path | None, as_json: bool) -> None:
    """Stop the engine; the next fill starts a new one."""
    was_running = asyncio.run(_stop(launch_of(checkpoint, user_settings())))
    if as_json:
        click.echo(msgspec.json.encode({"stopped": was_running}))
    else:
        click.echo("The engine has stopped." if was_running else "No engine was running.")


async def _start(launch: Launch, idle_minutes: float | None, show: Callable[[EngineStatus], None]) -> EngineStatus:
    """Returns the state of an engine whose model is loaded.

    One that has failed is started anew. Raises CheckpointError or EngineError if it cannot be loaded, InputError for a
    wish that a running engine does not know.
    """
    try:
        async with EngineClient(launch, name="midspan engine start") as client, asyncio.timeout(_LOAD_TIMEOUT_S):
            if (running := await client.status()) is not None and running.state == "failed":
                await client.shutdown_host()  # what was in its way may be gone, or be another wish
            (await launch.start())[1].close()
            _check_weights(launch, await client.status())
            if idle_minutes is not None:
                await client.set_idle(idle_minutes)
            while (status := await client.status()) is not None and status.state == "loading":
                show(status)
                await asyncio.sleep(_POLL_S)
    except TimeoutError as error:
        raise EngineError(f"the model did not load within {_LOAD_TIMEOUT_S:.0f} s; the log is {launch.log}") from error
    if status is None:
        raise EngineUnavailable(f"the engine died while it loaded the model; its log is {launch.log}")
    if status.state == "failed":
        # Only the model can have failed here, and all that a user can change about it is the folder.
        raise CheckpointError(status.error or f"the checkpoint {launch.checkpoint} cannot be loaded")
    return status


def _check_weights(launch: Launch, status: EngineStatus | None) -> None:
    """Raises InputError when the engine, which somebody else may have started just now, was told something else."""
    if status is not None and launch.weights not in (None, status.weights):
        raise InputError(f"an engine runs already, with --weights {status.weights}: run `midspan engine stop` first")


async def _stop(launch: Launch) -> bool:
    async with EngineClient(launch, name="midspan engine stop") as client:
        return await client.shutdown_host()
