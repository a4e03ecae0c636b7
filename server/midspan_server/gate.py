"""Why nothing is to be completed in a document, whatever the position. Cheap, because every key passes here."""

from __future__ import annotations

from midspan_server.privacy import first_match
from midspan_server.settings import Loaded
from midspan_server.silence import Silence
from midspan_server.text import MAX_CHARACTERS, TextDocument


def closed_gate(document: TextDocument, loaded: Loaded) -> Silence | None:
    """Returns the reason of a document that is left alone, or None."""
    settings = loaded.settings
    if not settings.enabled:
        return Silence("completion is switched off (midspan.enabled)", "off")
    if loaded.blocked is not None:
        return Silence(loaded.blocked, "off")
    if document.language in settings.disabled_languages:
        return Silence(f"completion is switched off for {document.language} (midspan.disabled_languages)", "off")
    if glob := next(filter(None, (first_match(path, settings.excluded_globs) for path in document.paths)), None):
        return Silence(f"the file is excluded by {glob!r} (midspan.excluded_globs)", "off")
    return unread(document)


def unread(document: TextDocument) -> Silence | None:
    """Returns why the text of a document is not to be read, for itself or beside another, or None."""
    if not document.is_in_step:
        return Silence("the editor sent a change that does not fit the document; close and open it again")
    n_characters = document.n_unread or len(document.snapshot.text)
    if n_characters > MAX_CHARACTERS:
        again = "; open it again when it is smaller" if document.n_unread else ""
        limit = f"nothing is completed above {MAX_CHARACTERS:,}{again}"
        return Silence(f"the file has {n_characters:,} characters; {limit}")
    if "\0" in document.snapshot.text:
        return Silence("the file is binary: it holds NUL characters")
    return None
