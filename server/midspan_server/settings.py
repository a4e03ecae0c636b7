"""The settings of the language server: one schema, three sources, and a message for every wrong value.

A later source wins: the user's file, then the client's `initializationOptions`, then its `workspace/configuration`. A
wrong value costs only itself: its key takes the default. An exclusion list that cannot be read blocks completion
altogether, because nobody knows any more what it was to keep out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import msgspec
import platformdirs

from midspan_engine.errors import InputError
from midspan_engine.protocol import ONE_LINE_TOKENS, SHOWN_CONFIDENCE
from midspan_server.holes import MARKER
from midspan_server.launch import IDLE_MINUTES
from midspan_server.privacy import DEFAULT_GLOBS, check_glob

SECTION = "midspan"
"""The section of a client's configuration that is ours."""

MAX_TOKENS = 192
"""Slots of the longest gap: a canvas of 256 slots keeps room for its pins."""

Trigger = Literal["automatic", "invoked"]
"""What made the client ask: a key that was typed, or the user by hand."""

Eagerness = Literal["reserved", "balanced", "eager"]

CONFIDENCE: dict[Eagerness, float] = {"reserved": 0.25, "balanced": SHOWN_CONFIDENCE, "eager": 0.1}
"""The confidence that each asks for; SHOWN_CONFIDENCE says what comes of it."""

FOREIGN_KEYS = frozenset({"trace", "$schema"})
"""What clients keep under our section for themselves, and where an editor finds `settings.schema.json`."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Says what is completed and how. `Meta` descriptions are what a user reads when a value is wrong."""

    enabled: Annotated[bool, msgspec.Meta(description="true or false")] = True
    disabled_languages: Annotated[
        tuple[str, ...], msgspec.Meta(description='a list of language ids such as ["markdown"]')
    ] = ()
    checkpoint: Annotated[str | None, msgspec.Meta(description="the path of a checkpoint folder, or null")] = None
    """None means the checkpoint that ships with Midspan."""
    max_tokens: Annotated[
        int, msgspec.Meta(ge=1, le=MAX_TOKENS, description=f"a whole number from 1 to {MAX_TOKENS}")
    ] = ONE_LINE_TOKENS
    """Slots of a gap on one line."""
    eagerness: Annotated[Eagerness, msgspec.Meta(description='"reserved", "balanced" or "eager"')] = "balanced"
    """How sure the model must be of what is shown, see CONFIDENCE."""
    min_confidence: Annotated[
        Annotated[float, msgspec.Meta(ge=0, le=1)] | None, msgspec.Meta(description="a number from 0 to 1")
    ] = None
    """The same as a number, which then counts instead of the word."""
    deadline_ms: Annotated[float, msgspec.Meta(ge=10, le=60_000, description="milliseconds, from 10 to 60000")] = 600
    """After it the best draft so far is the answer. VS Code 1.139 stops waiting 750 ms after a key (measured about 700
    ms after the request reached us) and then shows no ghost text at all.
    """
    idle_minutes: Annotated[float, msgspec.Meta(gt=0, description="a number of minutes above 0")] = IDLE_MINUTES
    """After so many without a fill the engine leaves and gives its memory back."""
    hole_marker: Annotated[str, msgspec.Meta(min_length=1, max_length=40, description="a short text such as ___")] = (
        MARKER
    )
    """What stands for something to be filled in."""
    excluded_globs: Annotated[
        tuple[str, ...], msgspec.Meta(description='a list of globs such as [".env*", "secrets/"]')
    ] = DEFAULT_GLOBS
    """Files in which nothing is completed."""
    context_excluded_globs: Annotated[
        tuple[str, ...], msgspec.Meta(description='a list of globs such as [".env*", "secrets/"]')
    ] = DEFAULT_GLOBS
    """Files that are never read to complete another one."""
    neighbour_characters: Annotated[int, msgspec.Meta(ge=0, le=8192, description="a whole number from 0 to 8192")] = 0
    """Characters of similar code from other open files that the engine is shown; 0 shows none. The shipped checkpoint
    reads 448 tokens, which the file itself fills.
    """

    workspace_files: Annotated[bool, msgspec.Meta(description="true or false")] = True
    """Looks for what the code at the cursor repeats in the other files of the workspace folder, too: those in the same
    language that git does not ignore. They are read, never sent anywhere.
    """
    popup: Annotated[bool, msgspec.Meta(description="true or false")] = False
    """Offers suggestions in the completion menu of an editor that could show them as ghost text, for users of nvim-cmp
    and the like. An editor without ghost text gets them there anyway. Read when the editor starts the server: from the
    user's file and from initializationOptions.
    """

    def confidence(self, trigger: Trigger) -> float:
        """Returns below which confidence nothing is shown; who asks by hand gets what an eager user does."""
        if self.min_confidence is not None:
            return self.min_confidence
        return CONFIDENCE["eager" if trigger == "invoked" else self.eagerness]


class Source(msgspec.Struct, frozen=True):
    """Holds what one source says, and where it is found, in words."""

    name: str
    values: Mapping[str, Any]
    unreadable: str | None = None
    """Why the source as a whole could not be read."""


class Loaded(msgspec.Struct, frozen=True):
    """Holds the settings in force and what was wrong with their sources."""

    settings: Settings = Settings()
    problems: tuple[str, ...] = ()
    """Messages for the user."""
    blocked: str | None = None
    """Why nothing may be completed: an exclusion list that cannot be read."""


def load(sources: Sequence[Source]) -> Loaded:
    """Returns the settings that sources give together, the last winning key by key. Never raises."""
    values: dict[str, Any] = {}
    problems: list[str] = []
    blocking: dict[str, str] = {}
    """By the key of the exclusion list that cannot be read."""
    for source in sources:
        if source.unreadable is not None:
            problems.append(source.unreadable)
            blocking |= dict.fromkeys(_GLOBS, source.unreadable)
        for key, value in source.values.items():
            if (value is None and key != "checkpoint") or key in FOREIGN_KEYS:
                continue  # a client sends null for what its user has not set
            if key not in _TYPES:
                problems.append(f"{SECTION}.{key} ({source.name}) is no setting; there are {', '.join(_TYPES)}")
                continue
            try:
                values[key] = _value(key, value)
                blocking.pop(key, None)
            except InputError as error:
                values.pop(key, None)
                problem = f"{SECTION}.{key} is {_shown(value)} ({source.name}): {error}"
                if key in _GLOBS:
                    problem += "; nothing is completed until it is right"
                    blocking[key] = problem
                else:
                    problem += f"; {_shown(_DEFAULTS[key])} is used"
                problems.append(problem)
    return Loaded(Settings(**values), tuple(problems), next(iter(blocking.values()), None))


def user_file() -> Path:
    """Returns the path of the user's settings file."""
    return Path(platformdirs.user_config_dir("midspan")) / "settings.json"


def read_user_file(path: Path) -> Source:
    """Reads the user's settings; a file that is absent says nothing. Never raises."""
    try:
        return client_source(str(path), json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return Source(str(path), {})
    except (OSError, ValueError, RecursionError) as error:
        return Source(
            str(path), {}, f"{path} cannot be read ({error}); nothing is completed until it is repaired or removed"
        )


def client_source(name: str, value: object) -> Source:
    """Returns what a client sent as a source; nothing at all is fine, anything but an object is not."""
    if value is None:
        return Source(name, {})
    if not isinstance(value, Mapping):
        return Source(name, {}, f"the settings in {name} are {_shown(value)}; an object with keys is accepted")
    return Source(name, {str(key): inner for key, inner in value.items()})


def _value(key: str, value: object) -> Any:
    """Returns a value of the key's type. Raises InputError saying what is accepted."""
    try:
        converted = msgspec.convert(value, _TYPES[key])
    except msgspec.ValidationError as error:
        raise InputError(f"{_accepted(key)} is accepted") from error
    if key in _GLOBS:
        for glob in converted:
            check_glob(glob)
    return converted


def _accepted(key: str) -> str:
    return next(str(meta.description) for meta in _TYPES[key].__metadata__ if isinstance(meta, msgspec.Meta))


def _shown(value: object) -> str:
    """Returns a value as JSON, short enough for a message."""
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= 60 else text[:57] + "..."


_TYPES: dict[str, Any] = get_type_hints(Settings, include_extras=True)
_DEFAULTS: dict[str, Any] = msgspec.structs.asdict(Settings())
_GLOBS = ("excluded_globs", "context_excluded_globs")
