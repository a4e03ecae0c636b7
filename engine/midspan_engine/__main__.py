"""Runs the commands of the engine side: `python -m midspan_engine COMMAND`.

Each command lives in a module of its own, imported only when it is used, because most of them need torch.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import click

from midspan_engine.errors import InputError, MidspanError

COMMANDS = {
    "bench": ("midspan_engine.bench:command", "Measures the latency of this machine."),
    "eval": ("midspan_engine.evaluation.command:command", "Runs an infilling benchmark."),
    "host": ("midspan_engine.host:command", "Runs the resident engine that all editor windows share."),
    "train": ("midspan_engine.training.command:command", "Trains or fine-tunes a checkpoint."),
    "verify": ("midspan_engine.verify:command", "Compares a checkpoint's logits with transformers."),
}
"""Name -> module:attribute, and the help line shown without importing it."""


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name][0].split(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command), f"{module}:{attribute} is not a command"
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


@click.group(cls=_LazyGroup)
def cli() -> None:
    """The Midspan engine's own commands; `midspan --help` lists those for everyday use."""


def main(args: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status: 0 for an answer, 2 for unusable input, 1 for our own failure."""
    try:
        status = cli.main(args=args, prog_name="midspan", standalone_mode=False)
        return status if isinstance(status, int) else 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except MidspanError as error:
        print(f"midspan: {error}", file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    except (click.Abort, KeyboardInterrupt):
        return 130


if __name__ == "__main__":
    sys.exit(main())
