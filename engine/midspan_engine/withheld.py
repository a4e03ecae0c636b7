"""Why a fill offers nothing, in words for its user."""

from __future__ import annotations

from collections.abc import Sequence

from midspan_engine.protocol import Candidate, Fill


def reason_for_none(candidates: Sequence[Candidate], shown: Sequence[Candidate], request: Fill) -> str | None:
    """Returns why none of the candidates of a fill is shown, None when one is."""
    if shown:
        return None
    offered = [candidate for candidate in candidates if any(candidate.gaps)]
    if offered:
        # What was given up, or cut off by the deadline, would only have got less probable.
        return doubt(offered[0].confidence, request.min_confidence, "" if offered[0].complete else "at most ")
    if candidates and candidates[0].complete:
        return "the model would add nothing here"
    if candidates:
        return "the model was sure of nothing before its deadline or its last step"
    return "the model found no text that fits"


def doubt(found: float, asked: float, bound: str = "") -> str:
    """Returns in words that a confidence does not suffice, with as many digits as it takes to see that."""
    n = next((n for n in range(2, 6) if f"{found:.{n}f}" != f"{asked:.{n}f}"), 6)
    return f"not confident enough: {bound}{found:.{n}f}, asked for {asked:.{n}f}"
