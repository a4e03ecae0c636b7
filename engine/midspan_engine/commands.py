"""A command line whose commands are imported when they are called, and where an error becomes one line on stderr.

::

    0    an answer, silence included
    1    our own failure
    2    input that cannot be used
    130  interrupted

The front end and the engine side run theirs alike. This module needs click alone: most commands behind it need torch.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from midspan_engine.errors import InputError, MidspanError

Table = Mapping[str, tuple[str, str]]
"""Name -> the module that holds the click command as `command`, and the help line, shown without importing it."""

ENGINE_COMMANDS = {
    "verify": ("midspan_engine.verify", "Compare a checkpoint's logits with transformers."),
    "eval": ("midspan_engine.evaluation.command", "Measure how good suggestions are."),
    "bench": ("midspan_engine.bench.command", "Measure latency and memory on this machine."),
    "gpu-check": ("midspan_engine.bench.gpu_check", "Check whether a GPU does what it should, and how fast."),
    "train": ("midspan_engine.training.command", "Train or fine-tune a checkpoint."),
}
"""What needs torch, and so a process of its own."""

WEIGHTS_VARIABLE = "MIDSPAN_WEIGHTS"
"""The environment variable that tells an engine how to hold a large model's experts: one of WEIGHTS."""
WEIGHTS = ("auto", "stored", "8bit", "4bit")
"""As the checkpoint has them, or packed into integers while it is loaded; auto packs what would not fit otherwise."""

CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

INTERRUPTED = 130
"""128 + SIGINT, as shells report it."""


class LazyCommand(click.Command):
    """A name and a line of help; the module behind it is imported when the command runs or explains itself."""

    def __init__(self, name: str, module: str, help_line: str) -> None:
        super().__init__(name, help=help_line)
        self.module = module

    def load(self) -> click.Command:
        """Imports and returns the real command."""
        command = importlib.import_module(self.module).command
        assert isinstance(command, click.Command), f"{self.module}.command is a click command"
        return command


class LazyGroup(click.Group):
    """A group that imports the members of its table on use, never for the list in `--help`, which keeps their order."""

    def __init__(self, *args: Any, table: Table, **kwargs: Any) -> None:
        super().__init__(*args, context_settings=CONTEXT_SETTINGS, **kwargs)
        for name, (module, help_line) in table.items():
            self.add_command(LazyCommand(name, module, help_line))

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names in the order of importance to a user."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Returns the command that the arguments name, imported."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, LazyCommand) else command, rest


def run(group: click.Group, arguments: Sequence[str] | None = None) -> int:
    """Runs the command that the arguments, by default those of the process, name; returns its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        status = group.main(args=given, prog_name="midspan", standalone_mode=False)
        return status if isinstance(status, int) else 0
    except click.exceptions.NoArgsIsHelpError as help_text:
        click.echo(help_text.format_message())
        return 0
    except click.Abort:
        return INTERRUPTED
    except click.ClickException as error:
        return _fail(f"{_sentence(error.format_message())}; {_help_hint(error)}", given, error.exit_code)
    except MidspanError as error:
        return _fail(str(error), given, 2 if isinstance(error, InputError) else 1)
    except Exception as error:
        # The one catch-all of this process: a user gets a line to report, never a stack trace.
        what = f"{type(error).__name__}: {error}"
        return _fail(f"internal error at {_place(error)}: {what}; please report it", given, 1)


def _fail(message: str, arguments: list[str], status: int) -> int:
    """Says what went wrong on stderr, and on stdout too for a reader of JSON."""
    # The bytes of a path that is not UTF-8 cannot be printed.
    message = message.encode(errors="replace").decode()
    # Looked up in the raw arguments: what went wrong may be that they could not be parsed.
    if "--json" in arguments:
        click.echo(msgspec.json.encode({"error": message}))
    click.echo(f"midspan: {message}", err=True)
    return status


def _place(error: Exception) -> str:
    """Returns file and line of the innermost frame that is ours."""
    frames = traceback.extract_tb(error.__traceback__)
    place = next((frame for frame in reversed(frames) if "/midspan_" in frame.filename), frames[-1])
    return f"{Path(place.filename).name}:{place.lineno}"


def _sentence(message: str) -> str:
    """Returns a message of click in our form: one line, no capital, no full stop."""
    line = " ".join(message.split()).rstrip(".")
    return line[:1].lower() + line[1:]


def _help_hint(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    return f"see `{context.command_path if context else 'midspan'} --help`"
