"""The command line, and the one place where an error becomes a line on stderr and an exit status.

::

    0    an answer, silence included
    1    our own failure
    2    input that cannot be used
    130  interrupted

A command is imported when it is called, so that `midspan lsp` starts without what the others need. The commands that
need torch run in a process of their own: the front end never loads it.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from midspan_engine.errors import InputError, MidspanError

INTERRUPTED = 130
"""128 + SIGINT, as shells report it."""


class LazyCommand(click.Command):
    """A name and a line of help; the module behind it is imported when the command runs or explains itself."""

    def __init__(self, name: str, help_line: str) -> None:
        super().__init__(name, help=help_line)
        self.module = f"{__package__}.{name}_command"

    def load(self) -> click.Command:
        """Imports and returns the real command."""
        command = importlib.import_module(self.module).command
        assert isinstance(command, click.Command), f"{self.module}.command is a click command"
        return command


class Commands(click.Group):
    """A group that resolves its lazy members on use, never for the list in `--help`, which keeps their order."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names in the order of importance to a user."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Returns the command that the arguments name, imported."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, LazyCommand) else command, rest


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="midspan", prog_name="midspan")
def midspan() -> None:
    """Fills the span between what stands before and after the cursor, on this machine."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status; the console entry point."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        status = midspan.main(args=given, prog_name="midspan", standalone_mode=False)
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
    # Looked up in the raw arguments: what went wrong may be that they could not be parsed.
    if "--json" in arguments:
        click.echo(msgspec.json.encode({"error": message}))
    click.echo(f"midspan: {message}", err=True)
    return status


def _place(error: Exception) -> str:
    """Returns file and line of the innermost frame that is ours."""
    frames = traceback.extract_tb(error.__traceback__)
    place = next((frame for frame in reversed(frames) if "midspan" in frame.filename), frames[-1])
    return f"{Path(place.filename).name}:{place.lineno}"


def _sentence(message: str) -> str:
    """Returns a message of click in our form: one line, no capital, no full stop."""
    line = " ".join(message.split()).rstrip(".")
    return line[:1].lower() + line[1:]


def _help_hint(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    return f"see `{context.command_path if context else 'midspan'} --help`"


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


for _command in (
    LazyCommand("lsp", "The language server on stdio; what editors start."),
    LazyCommand("fill", "Fill one gap of a file and print the result."),
    LazyCommand("status", "What the resident engine is and does."),
    LazyCommand("engine", "Start or stop the resident engine by hand."),
    LazyCommand("demo", "Fill gaps of a sample file through the language server."),
    _forwarded("verify", "Compare a checkpoint's logits with transformers."),
    _forwarded("eval", "Run infilling benchmarks: a table and JSON."),
    _forwarded("bench", "Latency and throughput of this machine."),
    _forwarded("train", "Train or fine-tune a checkpoint."),
):
    midspan.add_command(_command)
