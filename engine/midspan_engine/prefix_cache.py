"""Encoder KV per document, reused by longest common token prefix."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from midspan_engine.errors import Cancelled
from midspan_engine.kv import KVCache
from midspan_engine.models.diffusion_gemma import DiffusionGemma

MAX_DOCUMENTS = 16
"""Documents kept, least recently used first out: at 448 tokens of the small checkpoint about 2.5 MB each."""
CHUNK_TOKENS = 512
"""Tokens of one encoder pass: bounds the memory of a long prompt's attention and the wait of a cancelled request."""


@dataclass(slots=True)
class _Entry:
    cache: KVCache
    ids: list[int] = field(default_factory=list)


class PrefixCache:
    """Keeps what the encoder computed for the last prompt of each document."""

    def __init__(self, model: DiffusionGemma) -> None:
        self._model = model
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    @torch.inference_mode()
    def encode(
        self, document: str, ids: list[int], is_cancelled: Callable[[], bool] = lambda: False
    ) -> tuple[KVCache, int]:
        """Returns a cache that holds exactly `ids`, and how many of them had to be encoded now.

        Raises Cancelled when the flag is seen between two passes; what is encoded by then is kept for the next request.
        """
        entry = self._entries.pop(document, None) or _Entry(KVCache(self._model.config.n_layers))
        self._entries[document] = entry
        while len(self._entries) > MAX_DOCUMENTS:
            self._entries.popitem(last=False)
        n_shared = common_prefix(entry.ids, ids)
        entry.cache.truncate(n_shared)
        entry.ids = entry.ids[:n_shared]
        for start in range(n_shared, len(ids), CHUNK_TOKENS):
            if is_cancelled():
                raise Cancelled("the request was withdrawn")
            chunk = ids[start : start + CHUNK_TOKENS]
            self._model.encode(torch.tensor([chunk], device=self._model.embed_tokens.weight.device), entry.cache)
            entry.ids += chunk
        return entry.cache, len(ids) - n_shared

    def forget(self, document: str) -> None:
        """Drops a document's entry, if there is one."""
        self._entries.pop(document, None)


def common_prefix(first: list[int], second: list[int]) -> int:
    """Returns the number of leading items that two lists share."""
    for index, (a, b) in enumerate(zip(first, second, strict=False)):
        if a != b:
            return index
    return min(len(first), len(second))
