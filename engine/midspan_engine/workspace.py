"""What the other files of a client's workspace say, for as long as it lends them."""

from __future__ import annotations

import numpy as np

from midspan_engine.protocol import WORKSPACE_TOKENS
from midspan_engine.texts import Ints, Texts
from midspan_engine.tokens import Tokens


class Workspace:
    """The tokens of the files that were lent."""

    def __init__(self) -> None:
        self._ids: dict[str, Ints] = {}
        self._n_tokens = 0
        self._texts: Texts | None = None
        self._spans: dict[str, range] = {}
        self._is_stale = False

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def is_settled(self) -> bool:
        """Tells whether searches see all that was taken in."""
        return self._texts is not None and not self._is_stale

    def lend(self, file: str, text: str, tokens: Tokens) -> None:
        """Takes the text of a file in, in the place of an older one; an empty one takes it out at once.

        What there is no more room for is left out. Searches see what is new when the workspace is settled.
        """
        old = self._ids.pop(file, None)
        self._n_tokens -= 0 if old is None else len(old)
        ids = np.array(tokens.encode(text), dtype=np.int64)
        if len(ids) and self._n_tokens + len(ids) <= WORKSPACE_TOKENS:
            self._ids[file] = ids
            self._n_tokens += len(ids)
        if text:
            self._is_stale = True
        elif old is not None:
            self._texts = None

    def settle(self) -> bool:
        """Sorts what was taken in, which takes a while; says whether there was anything to do."""
        if self.is_settled:
            return False
        self._is_stale, self._spans, start = False, {}, 0
        for name, ids in self._ids.items():
            self._spans[name] = range(start, start + len(ids) + 1)
            start += len(ids) + 1
        self._texts = Texts(list(self._ids.values()), is_indexed=True)
        return True

    def besides(self, file: str) -> tuple[Texts, range]:
        """Returns all texts as they were settled last, and where among them that of one file lies."""
        if self._texts is None:
            self.settle()
        assert self._texts is not None, "it was just settled"
        return self._texts, self._spans.get(file, range(0))
