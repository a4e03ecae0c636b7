"""Over random gaps of code that no training data holds, nothing says again what stands behind it.

The engine offers no word that stands there; signs take knowledge of the language, which the filters have.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest
import torch

from duplicates import duplicated
from midspan_engine.config import embedded_checkpoint
from midspan_engine.engine import Engine
from midspan_server.asking import fill_of
from midspan_server.context import context_at
from midspan_server.filters import Dropped, sifted
from midspan_server.filters.overlap import overlap
from midspan_server.settings import Settings
from midspan_server.text import snapshot

N_ROUNDS, N_GAPS = 10, 50
"""500 gaps in all, in rounds that each end in time on a machine with other work."""
N_HIDDEN = 40
"""Characters of the line that are taken out at most, as if they were still to be typed."""

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def engine() -> Engine:
    torch.set_num_threads(1)
    return Engine.load(embedded_checkpoint())


def random_gaps(n: int, seed: int) -> list[tuple[str, str]]:
    """Returns what stands before and after gaps within lines of this project's own files."""
    rng = random.Random(seed)
    paths = [path for folder in ("engine", "server") for path in sorted((ROOT / folder).rglob("*.py"))]
    texts = [text for path in paths if len(text := path.read_text(encoding="utf-8")) > 1500]
    gaps = []
    while len(gaps) < n:
        text = rng.choice(texts)
        start = rng.randrange(len(text) // 10, len(text) - 1)
        line_end = text.find("\n", start)
        if line_end > start:
            gaps.append((text[:start], text[rng.randint(start, min(line_end, start + N_HIDDEN)) :]))
    return gaps


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(N_ROUNDS))
def test_nothing_repeats_what_follows(engine: Engine, seed: int) -> None:
    # Everything that the model comes up with, in about as many tokens as were taken out at most.
    settings = Settings(min_confidence=0.0, max_tokens=16)
    found: Counter[str] = Counter()
    twice: list[tuple[str, ...]] = []
    for number, (before, after) in enumerate(random_gaps(N_GAPS, seed)):
        context = context_at(snapshot(before + after), len(before), "invoked")
        fill = fill_of(context, f"gap {number}", settings, multi_line=False)
        fill = msgspec.structs.replace(fill, deadline_ms=None, n_candidates=1)
        filled = engine.fill(fill, received=time.perf_counter(), is_cancelled=lambda: False)
        for candidate in filled.candidates:
            found["offered by the engine"] += 1
            offered = duplicated(before, candidate.text, after)
            if offered is not None:
                found["signs said twice by the engine"] += 1
                assert not re.search(r"\w", offered), (before[-40:], candidate.text, after[:40])
            assert overlap(candidate.text, context) == candidate.text, "nothing for that filter to drop, uncut"
            text = sifted(candidate.text, context)
            if isinstance(text, Dropped):
                found[text.reason] += 1
            else:
                found["shown"] += 1
                if (piece := duplicated(before, text, after)) is not None:
                    twice.append((piece, before[-40:], text, after[:40]))
    print("\n".join(f"{n:5} {what}" for what, n in found.most_common()))
    assert found["shown"] > N_GAPS / 5, "a filter that drops everything repeats nothing"
    assert not twice
