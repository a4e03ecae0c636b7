"""`midspan lsp`: the language server that editors start."""

from __future__ import annotations

from pathlib import Path

import click

from midspan_server.configured import with_checkpoint
from midspan_server.lsp import serve_stdio

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


@click.command("lsp")
@click.option(
    "--log-level",
    type=click.Choice(LOG_LEVELS, case_sensitive=False),
    default="WARNING",
    show_default=True,
    help="From which level on to log to stderr; DEBUG quotes source code.",
)
@with_checkpoint
@click.option("--stdio", is_flag=True, help="Accepted because editors send it; there is no other transport.")
def command(log_level: str, checkpoint: Path | None, stdio: bool) -> int:
    """Serve an editor on stdin and stdout: what editors start, not people."""
    return serve_stdio(log_level, None if checkpoint is None else str(checkpoint))
