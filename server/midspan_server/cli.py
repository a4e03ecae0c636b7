"""The command line of a user: the front end's own commands, and those of the engine side.

What needs torch runs in a process of its own: the front end never loads it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from midspan_engine.commands import ENGINE_COMMANDS, LazyGroup, run

OWN_COMMANDS = {
    "lsp": ("midspan_server.lsp_command", "Serve an editor on stdio; what editors start."),
    "fill": ("midspan_server.fill_command", "Fill a gap of a file, or its holes, and print the result."),
    "edit": ("midspan_server.edit_command", "Edit a stretch of a file and print the difference."),
    "status": ("midspan_server.status_command", "Show what the resident engine is and does."),
    "engine": ("midspan_server.engine_command", "Start or stop the resident engine by hand."),
    "demo": ("midspan_server.demo_command", "Fill gaps of a sample file through the language server."),
}


@click.group(cls=LazyGroup, table=OWN_COMMANDS)
@click.version_option(package_name="midspan", prog_name="midspan")
def midspan() -> None:
    """Fills the span between what stands before and after the cursor, on this machine."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status; the console entry point."""
    return run(midspan, arguments)


def _forwarded(name: str, help_line: str) -> click.Command:
    """Returns a command that hands all its arguments, `--help` included, to the engine's own command line."""

    def hand_over(arguments: tuple[str, ...]) -> None:
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, "-P", "-m", "midspan_engine", name, *arguments])

    return click.Command(
        name,
        help=help_line,
        params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
        callback=hand_over,
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "help_option_names": []},
    )


for _name, (_module, _help_line) in ENGINE_COMMANDS.items():
    midspan.add_command(_forwarded(_name, _help_line))
