"""Nothing invisible is offered."""

from __future__ import annotations

import pytest

from filter_case import context_of
from midspan_server.filters import Dropped
from midspan_server.filters.blank import blank


@pytest.mark.parametrize("text", ["", " ", "\n", "  \n\t"])
def test_what_nobody_could_see_is_dropped(text: str) -> None:
    assert isinstance(blank(text, context_of("x = ║")), Dropped)


def test_blanks_at_the_end_of_a_line_go_and_those_before_code_stay() -> None:
    assert blank("1  ", context_of("x = ║\n")) == "1"
    assert blank("1, ", context_of("f(║y)\n")) == "1, "
