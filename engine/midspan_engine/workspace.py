"""What the other files of a client's workspace say, for as long as it lends them."""

from __future__ import annotations

import numpy as np

from midspan_engine.texts import Ints, Texts
from midspan_engine.tokens import Tokens

MAX_TOKENS = 400_000
"""Of one workspace, some 1.4 MB of code: ids, order and sorted ids of a token take 24 bytes, 10 MB in all. Chosen."""


class Workspace:
    """The tokens of the files that were lent."""

    def __init__(self) -> None:
        self._ids: dict[str, Ints] = {}
        self._texts: Texts | None = None
        self._spans: dict[str, range] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def lend(self, file: str, text: str, tokens: Tokens) -> None:
        """Takes the text of a file in, in the place of an older one; an empty one takes it out.

        What there is no more room for is left out.
        """
        self._texts = None
        self._ids.pop(file, None)
        ids = np.array(tokens.encode(text), dtype=np.int64)
        if len(ids) and sum(map(len, self._ids.values())) + len(ids) <= MAX_TOKENS:
            self._ids[file] = ids

    def besides(self, file: str) -> tuple[Texts, range]:
        """Returns all texts, and where among them that of one file lies."""
        if self._texts is None:
            self._texts = Texts(list(self._ids.values()), is_indexed=True)
            self._spans, start = {}, 0
            for name, ids in self._ids.items():
                self._spans[name] = range(start, start + len(ids) + 1)
                start += len(ids) + 1
        return self._texts, self._spans.get(file, range(0))
