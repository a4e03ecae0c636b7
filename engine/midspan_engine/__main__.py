"""Runs the commands of the engine side: `python -m midspan_engine COMMAND`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from midspan_engine.commands import ENGINE_COMMANDS, LazyGroup, run

OWN = {"host": ("midspan_engine.host", "The resident engine; clients start it.")}


@click.group(cls=LazyGroup, table=ENGINE_COMMANDS | OWN)
def cli() -> None:
    """The Midspan engine's own commands; `midspan --help` lists those for everyday use."""


def main(args: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status."""
    return run(cli, args)


if __name__ == "__main__":
    sys.exit(main())
