"""The encoder's KV cache of one prompt."""

from __future__ import annotations

import torch

_GROWTH = 256
"""Tokens by which a full buffer grows at least: a document of a few hundred tokens is copied once or twice."""


class KVCache:
    """Keys and values of every layer for the first `length` tokens of a prompt.

    Buffers are [1, capacity, kv_heads, head_dim] per layer and grow by doubling. Sliding layers keep every token too
    (attention masks to the window), so that `truncate` can go back to any length without encoding again.
    """

    def __init__(self, n_layers: int) -> None:
        self.length = 0
        self._keys: list[torch.Tensor | None] = [None] * n_layers
        self._values: list[torch.Tensor | None] = [None] * n_layers

    @property
    def n_bytes(self) -> int:
        """What the buffers take, their unused room included."""
        return sum(buffer.nbytes for buffer in (*self._keys, *self._values) if buffer is not None)

    def append(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Writes [1, L, kv_heads, head_dim] behind the tokens held; `advance` makes them count."""
        self._keys[layer] = _write(self._keys[layer], self.length, keys)
        self._values[layer] = _write(self._values[layer], self.length, values)

    def advance(self, n_tokens: int) -> None:
        """Counts tokens that every layer has appended."""
        self.length += n_tokens

    def truncate(self, length: int) -> None:
        """Forgets all tokens from `length` on."""
        assert 0 <= length <= self.length, "a cache can only be cut back"
        self.length = length

    def window(self, layer: int, end: int, n_tokens: int | None) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Returns keys and values of the last `n_tokens` before position `end` (all of them for None)."""
        keys, values = self._keys[layer], self._values[layer]
        if keys is None or values is None or end == 0:
            return None
        start = 0 if n_tokens is None else max(0, end - n_tokens)
        return keys[:, start:end], values[:, start:end]


def _write(buffer: torch.Tensor | None, start: int, rows: torch.Tensor) -> torch.Tensor:
    end = start + rows.shape[1]
    if buffer is None or end > buffer.shape[1]:
        grown = rows.new_empty(1, max(end + _GROWTH, 2 * start), *rows.shape[2:])
        if buffer is not None:
            grown[:, :start] = buffer[:, :start]
        buffer = grown
    buffer[:, start:end] = rows
    return buffer
