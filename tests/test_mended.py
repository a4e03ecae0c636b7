"""A light touch mends most slips of the keyboard, and leaves lines without one alone; shown on this project's files."""

from __future__ import annotations

import io
import keyword
import random
import time
import tokenize
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
import torch

from midspan_engine.config import embedded_checkpoint
from midspan_engine.edit import revise
from midspan_engine.engine import Engine
from midspan_server.context import context_at
from midspan_server.hunks import applied
from midspan_server.revision import Revision, outcome_of, request_of
from midspan_server.settings import Settings
from midspan_server.text import snapshot

N_LINES = 40
ROOT = Path(__file__).parent.parent
MIN_LETTERS = 4
"""Of a word in which a slip is made."""


@pytest.fixture(scope="module")
def engine() -> Engine:
    torch.set_num_threads(1)
    return Engine.load(embedded_checkpoint())


def words(rng: random.Random) -> Iterator[tuple[str, int, str]]:
    """Yields texts with the place of a name in each that stands there at least twice."""
    paths = [path for folder in ("engine", "server") for path in sorted((ROOT / folder).rglob("*.py"))]
    texts = [text for path in paths if 1500 < len(text := path.read_text(encoding="utf-8")) < 12000]
    for text in rng.sample(texts, len(texts)):
        names = [each for each in tokenize.generate_tokens(io.StringIO(text).readline) if each.type == tokenize.NAME]
        known = Counter(each.string for each in names)
        often = [
            each
            for each in names
            if known[each.string] > 1 and len(each.string) >= MIN_LETTERS and not keyword.iskeyword(each.string)
        ]
        if often:
            name = rng.choice(often)
            row, column = name.start
            yield text, sum(len(line) + 1 for line in text.split("\n")[: row - 1]) + column, name.string


def slip(word: str, rng: random.Random) -> str:
    """Returns a word with a letter left out, doubled or changed, or with two swapped."""
    at = rng.randrange(1, len(word) - 1)
    return rng.choice(
        [
            word[:at] + word[at + 1 :],
            word[:at] + word[at] + word[at:],
            word[:at] + rng.choice("etaoinsr") + word[at + 1 :],
            word[:at] + word[at + 1] + word[at] + word[at + 2 :],
        ]
    )


def touched_up(engine: Engine, text: str, at: int) -> str:
    """Returns a text after a light touch of the line that an offset stands in, with an editor's settings."""
    start = text.rfind("\n", 0, at) + 1
    revision = Revision.of(text, "touch_up", start, text.find("\n", at))
    first, last = (context_at(snapshot(text), end, "invoked", language="python") for end in revision.ends)
    request = request_of(revision, first, last, f"file:///{hash(text)}.py", Settings())
    filled = revise(engine, request, received=time.perf_counter(), is_cancelled=lambda: False)
    return applied(text, outcome_of(revision, filled, first).changes)


@pytest.mark.slow
def test_most_slips_are_mended_and_hardly_a_line_is_made_worse(engine: Engine) -> None:
    rng, found = random.Random(1), Counter[str]()
    for text, at, name in words(rng):
        typed = slip(name, rng)
        if typed == name or typed in text or found.total() == N_LINES:
            continue
        mistyped = text[:at] + typed + text[at + len(name) :]
        mended = touched_up(engine, mistyped, at)
        found["mended" if mended == text else "left" if mended == mistyped else "worse"] += 1
    print(found)
    assert found["mended"] >= 0.7 * N_LINES
    assert found["worse"] <= 0.1 * N_LINES


@pytest.mark.slow
def test_hardly_a_sound_line_is_changed(engine: Engine) -> None:
    chosen = islice(words(random.Random(2)), N_LINES)
    found = Counter("left" if touched_up(engine, text, at) == text else "changed" for text, at, _ in chosen)
    print(found)
    assert found["changed"] <= 0.1 * N_LINES
