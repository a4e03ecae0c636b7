"""KV caches of several prompts in buffers that are made once and never move.

A captured pass is bound to addresses. Here it is bound to the pool's, and which row of it belongs to whom is a number
that the pass reads on the device: so documents take turns, or stand side by side, and nothing is copied. Full layers
keep every token. Sliding layers keep a ring: the window that is seen, and slack, so that going back a little, as after
a backspace, leaves all that is seen in place. Shape suffixes: R rows, S places, G kv heads, D head dim.
"""

from __future__ import annotations

import weakref

import torch

from midspan_engine.config import LayerConfig, ModelConfig
from midspan_engine.kv import KVCache

DEVICE_SHARE = 0.25
"""Of the accelerator's memory that is free behind the weights, for KV caches; chosen, the rest is for activations and
others.
"""
CHUNK_TOKENS = 512
"""Tokens of one encoder pass: bounds the memory of a long prompt's attention and the wait of a cancelled request."""
SLACK_TOKENS = CHUNK_TOKENS
"""Places of a ring beside the window: what a pass of the encoder writes while its first token still sees a window, and
how far back a document goes without being encoded anew. 105 MB a row of the 26B model.
"""
ROOM_TOKENS = 4096
"""Of a row beside a prompt's budget: a conversation's opening quotes up to 8192 characters, and quotes and drafts are
read behind the prompt. Full layers alone have places for all of them: 84 MB a row of the 26B model.
"""
LEAST_ROWS = 2
"""Of a pool that documents take turns in: one is kept while another is read."""


class KVPool:
    """Rows of keys and values for prompts of at most `n_tokens`."""

    def __init__(
        self, config: ModelConfig, n_rows: int, n_tokens: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.n_rows, self.n_tokens = n_rows, n_tokens
        self.row_bytes = row_bytes(config, n_tokens, dtype)
        """What a row takes."""
        self.layers: list[tuple[torch.Tensor, torch.Tensor]] = []
        """Keys and values of each layer, [R, S, G, D]."""
        for layer in config.layers:
            shape = (n_rows, _n_places(config, layer, n_tokens), layer.n_kv_heads, layer.head_dim)
            keys, values = (torch.zeros(shape, dtype=dtype, device=device) for _ in range(2))
            self.layers.append((keys, values))
        self._windows = [config.sliding_window - 1 if layer.is_sliding else None for layer in config.layers]
        self._free = list(range(n_rows))

    @property
    def n_free(self) -> int:
        """Rows that belong to nobody."""
        return len(self._free)

    def take(self) -> KVCache | None:
        """Returns an empty cache in a row that is free, None without one. The row is free again once it is dropped."""
        if not self._free:
            return None
        row = self._free.pop()
        rooms = [
            _Ring(keys[row, None], values[row, None], window)
            for (keys, values), window in zip(self.layers, self._windows, strict=True)
        ]
        cache = KVCache(len(rooms), rooms, row)
        weakref.finalize(cache, self._free.append, row)
        return cache


def row_bytes(config: ModelConfig, n_tokens: int, dtype: torch.dtype) -> int:
    """Returns what a row for prompts of `n_tokens` takes."""
    return dtype.itemsize * sum(
        2 * _n_places(config, layer, n_tokens) * layer.n_kv_heads * layer.head_dim for layer in config.layers
    )


def _n_places(config: ModelConfig, layer: LayerConfig, n_tokens: int) -> int:
    return min(n_tokens, config.sliding_window + SLACK_TOKENS) if layer.is_sliding else n_tokens


class _Ring:
    """A layer's part of a row: position p lies at place p % S. It never comes round where S is a prompt's length."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, window: int | None) -> None:
        self._keys, self._values = keys, values
        self._window, self._n_places = window, keys.shape[1]

    @property
    def n_bytes(self) -> int:
        return self._keys.nbytes + self._values.nbytes

    def write(self, start: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        first, n_tokens = start % self._n_places, keys.shape[1]
        assert self._window is not None or start + n_tokens <= self._n_places, "the pool is made for shorter prompts"
        n_fit = min(n_tokens, self._n_places - first)
        for buffer, rows in ((self._keys, keys), (self._values, values)):
            buffer[:, first : first + n_fit] = rows[:, :n_fit]
            buffer[:, : n_tokens - n_fit] = rows[:, n_fit:]

    def read(self, start: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        first, n_tokens = start % self._n_places, end - start
        assert n_tokens <= self._n_places, "a ring holds a window and one pass of the encoder"
        n_over = first + n_tokens - self._n_places
        if n_over <= 0:
            return self._keys[:, first : first + n_tokens], self._values[:, first : first + n_tokens]
        keys, values = (torch.cat([t[:, first:], t[:, :n_over]], 1) for t in (self._keys, self._values))
        return keys, values

    def holds(self, length: int, end: int) -> bool:
        return self._window is None or max(0, length - self._window) >= end - self._n_places
