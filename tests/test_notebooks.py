"""What is read of the cells around a cell."""

from __future__ import annotations

import pytest

from midspan_server.context import MAX_SUFFIX, Around, context_at
from midspan_server.notebooks import Notebooks
from midspan_server.text import TextDocument, snapshot


@pytest.mark.parametrize("fault", ["none", "out of step", "binary"])
def test_a_cell_that_the_gate_keeps_out_is_not_read_beside_another(fault: str) -> None:
    here = TextDocument("#2", "python", snapshot("y = "))
    others = [TextDocument(uri, "python", snapshot("x = 1" + "\0" * (fault == "binary"))) for uri in ("#1", "#3")]
    for other in others:
        other.is_in_step = fault != "out of step"
    notebooks = Notebooks()
    notebooks.open("a.ipynb", ["#1", "#2", "#3"])
    around = notebooks.around("#2", {each.uri: each for each in (here, *others)})
    assert around == (Around("x = 1\n\n", "\n\nx = 1") if fault == "none" else Around())


@pytest.mark.parametrize(("n_lines", "is_cut"), [(2, False), (MAX_SUFFIX, True)])
def test_a_suffix_of_later_cells_is_cut_at_a_line_and_says_so(n_lines: int, is_cut: bool) -> None:
    after = "\n\n" + "abc = 1\n" * n_lines
    found = context_at(snapshot("x = "), 4, "automatic", around=Around("", after))
    assert found.suffix_is_cut is is_cut
    assert found.suffix.endswith("abc = 1\n")
    assert after.startswith(found.suffix)
    assert len(found.suffix) <= MAX_SUFFIX


def test_later_cells_are_not_read_behind_a_suffix_that_is_cut() -> None:
    text = "x = \n" + "y = 2\n" * MAX_SUFFIX
    assert context_at(snapshot(text), 4, "automatic", around=Around("", "\n\nz")) == context_at(
        snapshot(text), 4, "automatic"
    )
