"""What every command starts from: the user's settings, and the engine that they and `--checkpoint` name."""

from __future__ import annotations

from pathlib import Path

import click

from midspan_engine.errors import InputError
from midspan_server.launch import Launch
from midspan_server.privacy import first_match, names_of
from midspan_server.settings import Loaded, load, read_user_file, user_file

with_checkpoint = click.option(
    "--checkpoint",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Model folder. Default: the setting `checkpoint`, else the one that ships.",
)
with_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def user_settings() -> Loaded:
    """Returns the settings of the user's file; what is wrong with them is said on stderr."""
    loaded = load([read_user_file(user_file())])
    for problem in loaded.problems:
        click.echo(f"midspan: {problem}", err=True)
    return loaded


def launch_of(checkpoint: Path | None, loaded: Loaded) -> Launch:
    """Returns the launch of the checkpoint given by hand, else of the one in the settings, else of the default."""
    configured = loaded.settings.checkpoint
    chosen = checkpoint or (Path(configured) if configured else None)
    return Launch.resolve(chosen, loaded.settings.idle_minutes)


def refuse_secrets(path: Path, loaded: Loaded) -> None:
    """Raises InputError for a file that the privacy settings keep out, under its own name or the one it links to."""
    if loaded.blocked is not None:
        raise InputError(loaded.blocked)
    for name in names_of(str(path)):
        if glob := first_match(name, loaded.settings.excluded_globs):
            raise InputError(
                f"{path} is kept out of completion by the glob {glob!r}, because such files hold secrets; "
                f"if this one does not, change excluded_globs in {user_file()}"
            )
