"""Notebooks: the cells before and after a cell are read as if they stood in one file with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from midspan_server.context import NOTHING_AROUND, Around
from midspan_server.gate import unread
from midspan_server.text import TextDocument

_BETWEEN = "\n\n"
"""Stands between two cells, as between two paragraphs of a file."""


class Notebooks:
    """Knows which open documents are cells of one notebook, in their order. Cells are named by their URIs."""

    def __init__(self) -> None:
        self._cells: dict[str, list[str]] = {}

    def open(self, notebook: str, cells: Sequence[str]) -> None:
        """Takes a notebook in."""
        self._cells[notebook] = list(cells)

    def splice(self, notebook: str, start: int, n_gone: int, cells: Sequence[str]) -> None:
        """Puts cells in the place of `n_gone` others."""
        self._cells.setdefault(notebook, [])[start : start + n_gone] = cells

    def close(self, notebook: str) -> list[str]:
        """Forgets a notebook and returns the cells that it had."""
        return self._cells.pop(notebook, [])

    def around(self, cell: str, documents: Mapping[str, TextDocument]) -> Around:
        """Returns the code of the other cells in the language of this one; nothing for an ordinary document."""
        cells = next((cells for cells in self._cells.values() if cell in cells), None)
        if cells is None:
            return NOTHING_AROUND
        at = cells.index(cell)
        language = documents[cell].language

        def texts(part: Sequence[str]) -> list[str]:
            known = (documents[each] for each in part if each in documents)
            return [each.snapshot.text for each in known if each.language == language and unread(each) is None]

        before, after = texts(cells[:at]), texts(cells[at + 1 :])
        return Around(
            "".join(text.rstrip() + _BETWEEN for text in before), "".join(_BETWEEN + text.rstrip() for text in after)
        )
