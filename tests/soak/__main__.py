"""`python -m soak typing|chaos|storm`: prints what came of it as JSON; the exit status says whether all was well."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import TypeVar

import click
import msgspec

from soak import storm, type_along

T = TypeVar("T")


@click.group()
def cli() -> None:
    """Long runs with processes, sockets and settings of their own."""


@cli.command("typing")
@click.option("--editors", default=8, show_default=True)
@click.option("--minutes", default=5.0, show_default=True)
@click.option("--keys", default=8.0, show_default=True, help="A second, of every editor.")
@click.option("--seed", default=0, show_default=True)
def typing(editors: int, minutes: float, keys: float, seed: int) -> None:
    """Editors that type against one engine."""
    _type(editors, minutes, keys, [], seed)


@cli.command("chaos")
@click.option("--editors", default=3, show_default=True)
@click.option("--minutes", default=3.0, show_default=True)
@click.option("--seed", default=0, show_default=True)
def chaos(editors: int, minutes: float, seed: int) -> None:
    """The same while the engine is killed, frozen, hidden and shouted at."""
    _type(editors, minutes, 8.0, type_along.TROUBLES, seed)


@cli.command("storm")
@click.option("--connects", default=1000, show_default=True)
@click.option("--cuts", default=100, show_default=True)
@click.option("--seed", default=0, show_default=True)
def storm_command(connects: int, cuts: int, seed: int) -> None:
    """Clients that come and go, and sockets that are cut."""
    folder = _own_folders()
    report = _run(storm.run(folder, n_connects=connects, n_cuts=cuts, seed=seed))
    is_well = report.clients_after == 1 and report.answered == cuts and not report.left_behind
    sys.exit(0 if is_well and report.files_after <= report.files_before else 1)


def _type(editors: int, minutes: float, keys: float, troubles: list[type_along.Trouble], seed: int) -> None:
    report = _run(
        type_along.run(
            _own_folders(),
            n_editors=editors,
            seconds=minutes * 60,
            keys_per_s=keys,
            troubles=troubles,
            pause_s=10.0,
            seed=seed,
        )
    )
    is_well = not (report.wrong or report.unanswered or report.left_behind or any(report.exit_statuses))
    sys.exit(0 if is_well and report.recovered == editors else 1)


def _own_folders() -> Path:
    """Makes the folders of this run and names them in the environment; they stay, for a look at the logs."""
    folder = Path(tempfile.mkdtemp(prefix="midspan-soak-"))
    for variable, name in (("MIDSPAN_RUNTIME_DIR", "run"), ("XDG_STATE_HOME", "state"), ("XDG_CONFIG_HOME", "config")):
        os.environ[variable] = str(folder / name)
    click.echo(f"logs are in {folder}", err=True)
    return folder


def _run(work: Coroutine[object, object, T]) -> T:
    report = asyncio.run(work)
    click.echo(msgspec.json.format(msgspec.json.encode(report)))
    return report


if __name__ == "__main__":
    cli()
