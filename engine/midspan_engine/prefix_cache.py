"""Encoder KV per document, reused by longest common token prefix, within a budget of bytes.

A document's name may begin with its owner and a space: what is over budget goes from the owner who holds most, so that
nobody who opens many files takes the cache from somebody who edits one.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from midspan_engine.encoding import encode
from midspan_engine.errors import Cancelled
from midspan_engine.kv import KVCache
from midspan_engine.kv_pool import CHUNK_TOKENS, DEVICE_SHARE, SLACK_TOKENS
from midspan_engine.models.diffusion_gemma import DiffusionGemma

CPU_BUDGET_BYTES = 256 * 2**20
"""Chosen: a hundred documents of the small checkpoint, which take about 2.5 MB each at 448 tokens."""


@dataclass(slots=True)
class _Entry:
    cache: KVCache
    ids: list[int] = field(default_factory=list)


class PrefixCache:
    """Keeps what the encoder computed for the last prompt of each document."""

    def __init__(self, model: DiffusionGemma, budget_bytes: int | None = None) -> None:
        self._model = model
        self._pool = None if model.captured is None else model.captured.pool
        self._budget = self._room() if budget_bytes is None else budget_bytes
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self.n_bytes = 0
        """What all entries take, as of the last change."""

    def __len__(self) -> int:
        return len(self._entries)

    @torch.inference_mode()
    def encode(
        self, document: str, ids: list[int], is_cancelled: Callable[[], bool] = lambda: False
    ) -> tuple[KVCache, int]:
        """Returns a cache that holds exactly `ids`, and how many of them had to be encoded now.

        Raises Cancelled when the flag is seen between two passes; what is encoded by then is kept for the next request.
        """
        entry = self._entries.pop(document, None)
        if entry is None or (entry.cache.row is not None and not self._fits_pool(ids)):
            entry = _Entry(self._empty(ids))
        self._entries[document] = entry
        n_shared = entry.cache.reach(common_prefix(entry.ids, ids))
        entry.cache.truncate(n_shared)
        entry.ids = entry.ids[:n_shared]
        for start in range(n_shared, len(ids), CHUNK_TOKENS):
            if is_cancelled():
                raise Cancelled("the request was withdrawn")
            chunk = ids[start : start + CHUNK_TOKENS]
            encode(self._model, chunk, entry.cache)
            entry.ids += chunk
        self._shrink(document)
        return entry.cache, len(ids) - n_shared

    def forget(self, document: str) -> None:
        """Drops a document's entry, if there is one."""
        entry = self._entries.pop(document, None)
        self.n_bytes -= entry.cache.n_bytes if entry is not None else 0

    def clear(self) -> None:
        """Drops all entries."""
        self._entries.clear()
        self.n_bytes = 0

    def _empty(self, ids: list[int]) -> KVCache:
        """Returns a cache for `ids`: a row of the pool, or a cache of its own where no row is free or long enough."""
        return self._model.new_cache() if self._fits_pool(ids) else KVCache(self._model.config.n_layers)

    def _fits_pool(self, ids: list[int]) -> bool:
        """Tells whether a row of the pool holds `ids` and what the encoder reads behind them."""
        return self._pool is not None and len(ids) + SLACK_TOKENS <= self._pool.n_tokens

    def _room(self) -> int:
        """Returns the budget in bytes; of a pool a row stays free for the next document."""
        if self._pool is not None:
            return (self._pool.n_rows - 1) * self._pool.row_bytes
        device = self._model.embed_tokens.weight.device
        if device.type != "cuda":
            return CPU_BUDGET_BYTES
        return int(torch.cuda.mem_get_info(device)[0] * DEVICE_SHARE)

    def _shrink(self, kept: str) -> None:
        """Drops entries until the rest fits the budget, never `kept`: the least recently used of the largest owner."""
        held: Counter[str] = Counter()
        for document, entry in self._entries.items():
            held[_owner(document)] += entry.cache.n_bytes
        while held.total() > self._budget and len(self._entries) > 1:
            others = [document for document in self._entries if document != kept]
            loser = max(others, key=lambda document: held[_owner(document)])
            held[_owner(loser)] -= self._entries.pop(loser).cache.n_bytes
        self.n_bytes = held.total()


def _owner(document: str) -> str:
    return document.partition(" ")[0]


def common_prefix(first: list[int], second: list[int]) -> int:
    """Returns the number of leading items that two lists share."""
    for index, (a, b) in enumerate(zip(first, second, strict=False)):
        if a != b:
            return index
    return min(len(first), len(second))
