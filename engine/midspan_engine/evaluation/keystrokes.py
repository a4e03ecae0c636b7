"""How many keys a user saves: regions of held-out files typed through the real language server, key by key.

In each file a region of whole lines is taken out and typed again, with the rest of the file around it. The rules:

- A *key* is a character; Enter brings the indentation of the next line with it, as editors do, so indentation costs
  nothing. `keys` is what the region takes by hand.
- After every key, and after every accepted suggestion, the front end is asked as editors ask by themselves, with
  default settings, and the answer is waited for.
- A suggestion is accepted when it is right: *whole*, when it is what comes next and ends where a word does, for one
  key; or else its first *line*, one key; or else as many leading *words* as are right, one key each. Only if it saves
  a key: `saved` is what was not typed less the keys for accepting.
- `shown` counts suggestions, not answers: one that stays while the user types along is the same. `precision` is
  accepted of shown, whatever part was accepted.
- An answer that comes after `IN_TIME_MS` saves nothing in `saved_in_time`. The typing is not repeated for that, so it
  is a lower bound: some key later the same suggestion might have come in time.

Not played: brackets that editors close by themselves, suggestions under an open menu, going back, and people. The
front end's deadline is part of its defaults, so on a slow machine less is offered.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Sequence

from midspan_engine.evaluation.cases import name_of
from midspan_engine.evaluation.language_server import LanguageServer, Offer
from midspan_engine.evaluation.report import Accept, Region, Typing
from midspan_engine.evaluation.scores import interval, percentile
from midspan_engine.training.corpus import SourceFile

REGION_LINES = 12
"""Lines of a region: some 300 keys. Chosen."""
MIN_CODE_LINES = 8
"""Lines of a region that must not be blank."""
IN_TIME_MS = 300.0
"""An answer later than this is taken as not seen: at 200 keys a minute the next key is there. Chosen."""
N_RESAMPLES = 1000

_WORD = re.compile(r"\s*(?:\w+|[^\w\s]+)")


class Typist:
    """Types regions and counts."""

    def __init__(self, server: LanguageServer) -> None:
        self._server = server
        self.n_requests = self.n_shown = self.n_accepted = 0
        self.times_ms: list[float] = []

    def type_region(self, file: SourceFile, start: int, end: int) -> Region:
        """Types `text[start:end]` of a file into the file without it, the others of its package beside it."""
        text = file.text
        self._server.open(text[:start] + text[end:], name_of(file))
        self._server.complete(start)
        self._server.wait_for_files(file.package)
        typed, accepts = start, list[Accept]()
        ghost = ""
        while typed < end:
            key = key_at(text, typed)
            self._server.insert(typed, key)
            typed += len(key)
            ghost = ghost[len(key) :] if ghost.startswith(key) else ""
            while typed < end:
                offer = self._ask(typed)
                self.n_shown += bool(offer.text) and offer.text != ghost
                ghost = offer.text
                chosen = right_part(offer.text, text[typed:end])
                if chosen is None:
                    break
                how, part, n_accept_keys = chosen
                self.n_accepted += 1
                accepts.append(Accept(how, n_keys(part) - n_accept_keys, offer.ms))
                self._server.insert(typed, part)
                typed += len(part)
                ghost = ""
        return Region(name=f"{name_of(file)}:{start}", keys=n_keys(text[start:end]), accepts=tuple(accepts))

    def report(self, regions: Sequence[Region], seed: int) -> Typing:
        """Returns the figures of what was typed so far."""
        keys = sum(region.keys for region in regions)
        in_time = sum(one.saved for region in regions for one in region.accepts if one.ms <= IN_TIME_MS)
        return Typing(
            keys=keys,
            saved=_saved_share(regions),
            saved_interval=_saved_interval(regions, seed),
            saved_in_time=in_time / max(1, keys),
            in_time_ms=IN_TIME_MS,
            requests=self.n_requests,
            shown=self.n_shown,
            accepted=self.n_accepted,
            precision=self.n_accepted / max(1, self.n_shown),
            precision_interval=interval(self.n_accepted, self.n_shown),
            p50_ms=percentile(self.times_ms, 0.5),
            p90_ms=percentile(self.times_ms, 0.9),
            regions=tuple(regions),
        )

    def _ask(self, offset: int) -> Offer:
        offer = self._server.complete(offset)
        self.n_requests += 1
        self.times_ms.append(offer.ms)
        return offer


def draw_regions(files: Iterable[SourceFile], n_files: int, seed: int) -> Iterator[tuple[SourceFile, int, int]]:
    """Yields file, start and end of one region in each of the first `n_files` files that have one."""
    rng = random.Random(seed)
    n_found = 0
    for file in files:
        if n_found == n_files:
            return
        span = _region(file.text, rng)
        if span is not None:
            n_found += 1
            yield (file, *span)


def _region(text: str, rng: random.Random) -> tuple[int, int] | None:
    """Returns a region behind the first tenth of a file, without the indentation of its first line.

    None when the file is too short or the drawn lines are too empty.
    """
    lines = text.split("\n")
    first, last = len(lines) // 10, len(lines) - REGION_LINES - 1
    if last <= first or "\r" in text:
        return None
    line = rng.randrange(first, last)
    chosen = lines[line : line + REGION_LINES]
    if sum(bool(one.strip()) for one in chosen) < MIN_CODE_LINES:
        return None
    region = "\n".join(chosen)
    start = sum(len(one) + 1 for one in lines[:line])
    return start + len(region) - len(region.lstrip()), start + len(region.rstrip())


def key_at(text: str, offset: int) -> str:
    """Returns what the next key types: a character, or a line break with the indentation behind it."""
    character = text[offset]
    if character != "\n":
        return character
    end = offset + 1
    while end < len(text) and text[end] in " \t":
        end += 1
    return text[offset:end]


def n_keys(text: str) -> int:
    """Returns how many keys type a text that begins behind its line's indentation or inside a line."""
    return len(re.sub(r"\n[ \t]*", "\n", text))


def right_part(offered: str, upcoming: str) -> tuple[str, str, int] | None:
    """Returns how a suggestion is accepted, the text of it that is, and the keys for that; None when it is not."""
    whole = offered.rstrip()
    line = offered.split("\n", 1)[0].rstrip()
    for how, part in (("whole", whole), ("line", line)):
        if _comes_next(part, upcoming) and n_keys(part) > 1:
            return how, part, 1
    part, n_words = "", 0
    for found in _WORD.finditer(line):
        if not _comes_next(line[: found.end()], upcoming):
            break
        part, n_words = line[: found.end()], n_words + 1
    return ("words", part, n_words) if n_keys(part) > n_words else None


def _comes_next(part: str, upcoming: str) -> bool:
    """Says whether a text is what comes next and does not end inside a word of it."""
    if not part or not upcoming.startswith(part):
        return False
    following = upcoming[len(part) : len(part) + 1]
    return not (_is_word(part[-1]) and _is_word(following))


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _saved_share(regions: Sequence[Region]) -> float:
    saved = sum(one.saved for region in regions for one in region.accepts)
    return saved / max(1, sum(region.keys for region in regions))


def _saved_interval(regions: Sequence[Region], seed: int) -> tuple[float, float]:
    rng = random.Random(seed)
    shares = [_saved_share(rng.choices(regions, k=len(regions))) for _ in range(N_RESAMPLES)] if regions else []
    return percentile(shares, 0.025), percentile(shares, 0.975)
