"""`python -m soak typing|chaos|storm`: prints what came of it as JSON and what it must show beside the figures.

The exit status is 0 where every bar is met, else 1. What the bars are, and why they lie where they do: bars.py.
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

import click
import msgspec

from soak import bars, storm, type_along


class Amount(click.FloatRange):
    """A number above 0 that is one: neither endless nor NaN, with which every bar would be met."""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{number} is no amount", param, ctx)
        return number


@click.group()
def cli() -> None:
    """Long runs with processes, sockets and settings of their own."""


@cli.command("typing")
@click.option("--editors", default=8, type=click.IntRange(min=1), show_default=True)
@click.option("--minutes", default=5.0, type=Amount(), show_default=True)
@click.option("--keys", default=8.0, type=Amount(), show_default=True, help="A second, of every editor.")
@click.option("--seed", default=0, show_default=True)
def typing(editors: int, minutes: float, keys: float, seed: int) -> None:
    """Editors that type against one engine."""
    report = _typed(editors, minutes, keys, [], seed)
    judge(report, bars.of_typing(report))


@cli.command("chaos")
@click.option("--editors", default=3, type=click.IntRange(min=1), show_default=True)
@click.option("--minutes", default=3.0, type=Amount(), show_default=True)
@click.option("--seed", default=0, show_default=True)
def chaos(editors: int, minutes: float, seed: int) -> None:
    """The same while the engine is killed, frozen, hidden, shouted at, its disk is full, and the time of day jumps."""
    report = _typed(editors, minutes, 8.0, type_along.TROUBLES, seed)
    judge(report, bars.of_chaos(report))


@cli.command("storm")
@click.option("--connects", default=1000, type=click.IntRange(min=1), show_default=True)
@click.option("--cuts", default=100, type=click.IntRange(min=1), show_default=True)
@click.option("--seed", default=0, show_default=True)
def storm_command(connects: int, cuts: int, seed: int) -> None:
    """Clients that come and go, and sockets that are cut."""
    report = asyncio.run(storm.run(_own_folders(), n_connects=connects, n_cuts=cuts, seed=seed))
    judge(report, bars.of_storm(report))


def judge(report: msgspec.Struct, found: list[bars.Bar]) -> NoReturn:
    """Prints a report, and its bars on stderr; ends the program."""
    click.echo(msgspec.json.format(msgspec.json.encode(report)))
    for bar in found:
        click.echo(bar, err=True)
    sys.exit(1 if any(bar.is_met is False for bar in found) else 0)


def _typed(
    editors: int, minutes: float, keys: float, troubles: list[type_along.Trouble], seed: int
) -> type_along.Report:
    return asyncio.run(
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


def _own_folders() -> Path:
    """Makes the folders of this run and names them in the environment; they stay, for a look at the logs."""
    folder = Path(tempfile.mkdtemp(prefix="midspan-soak-"))
    for variable, name in (("MIDSPAN_RUNTIME_DIR", "run"), ("XDG_STATE_HOME", "state"), ("XDG_CONFIG_HOME", "config")):
        os.environ[variable] = str(folder / name)
    click.echo(f"logs are in {folder}", err=True)
    return folder


if __name__ == "__main__":
    cli()
