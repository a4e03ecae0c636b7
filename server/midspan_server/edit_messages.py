"""The requests for edits and holes and their answer, as they stand on the wire between editor and server."""

from __future__ import annotations

import msgspec

from midspan_server.text import Position, Span

EDIT = "midspan/edit"
HOLES = "midspan/holes"
PRESETS = "midspan/editPresets"
APPLY_EDIT = "midspan.applyEdit"
"""A command of the server: its one argument is the params of `midspan/edit`."""
APPLY_HOLES = "midspan.applyHoles"


class VersionedDocument(msgspec.Struct, frozen=True):
    """Names a document and, where it is known, its version."""

    uri: str
    version: int | None = None


class EditParams(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Asks for an edit of a selection."""

    text_document: VersionedDocument
    range: Span
    preset: str | None = None
    """One of the `PresetId`s; another is answered with silence, as what cannot be done."""
    instruction: str | None = None
    strength: float | None = None
    work_done_token: int | str | None = None


class HolesParams(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Asks for holes to be filled."""

    text_document: VersionedDocument
    range: Span | None = None
    """Where to look; None is the whole document."""
    positions: tuple[Position, ...] | None = None
    """Explicit holes, such as the places of several cursors."""
    marker: str | None = None
    work_done_token: int | str | None = None


class TextEdit(msgspec.Struct, frozen=True, rename="camel"):
    """One change of a document."""

    range: Span
    new_text: str


class EditResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Answers both: changes of one version of the document, or a silence."""

    text_document: VersionedDocument
    edits: list[TextEdit]
    confidence: float | None = None
    message: str | None = None
    silence: str | None = None
