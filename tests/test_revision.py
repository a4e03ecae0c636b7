"""What one request asks for, and what is left for the next."""

from __future__ import annotations

import pytest

from midspan_server.holes import find_holes
from midspan_server.revision import MAX_EDITED, MAX_HOLES, Revision


@pytest.mark.parametrize(("between", "n_asked"), [("", MAX_HOLES), ("#" * 1_000, MAX_EDITED // 1_000)])
def test_holes_too_many_or_too_far_apart_for_one_request_are_left_for_the_next(between: str, n_asked: int) -> None:
    text = f"x = f()  {between}\n" * 100
    revision = Revision.of_holes(text, find_holes(text, 0, len(text)))
    start, end = revision.ends
    assert (len(revision.stretches), revision.n_holes) == (n_asked, 100)
    assert end - start <= MAX_EDITED
