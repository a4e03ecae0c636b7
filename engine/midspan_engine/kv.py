"""The encoder's KV cache of one prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

_GROWTH = 256
"""Tokens by which a full buffer grows at least: a document of a few hundred tokens is copied once or twice."""


class Room(Protocol):
    """Where a layer's keys and values lie, each [1, L, kv_heads, head_dim]."""

    @property
    def n_bytes(self) -> int:
        """What it takes, unused room included."""

    def write(self, start: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Writes those of the positions from `start` on; all before are written."""

    def read(self, start: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns those of positions `start` to `end`, all of which are still held."""

    def holds(self, length: int, end: int) -> bool:
        """Tells whether all that is seen behind `length` tokens is still there when `end` have been written."""


class KVCache:
    """Keys and values of every layer for the first `length` tokens of a prompt.

    They lie in `rooms`, by default in buffers that grow by doubling and keep every token in sliding layers too
    (attention masks to the window): a short prompt takes little, and `truncate` can go back to any length.
    """

    def __init__(self, n_layers: int, rooms: Sequence[Room] = (), row: int | None = None) -> None:
        self.length = 0
        self.row = row
        """Which row of a pool it is, None for a cache of its own."""
        self._rooms = rooms or [_GrowingRoom() for _ in range(n_layers)]
        self._end = 0
        """How far was written since it was empty: what lies behind `length` counts again when `advance` says so."""

    @property
    def n_bytes(self) -> int:
        """What the buffers take, their unused room included."""
        return sum(room.n_bytes for room in self._rooms)

    def append(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Writes [1, L, kv_heads, head_dim] behind the tokens held; `advance` makes them count."""
        self._rooms[layer].write(self.length, keys, values)
        self.reserve(keys.shape[1])

    def reserve(self, n_tokens: int) -> None:
        """Counts so many places behind the tokens held as written; a pass of fixed shape writes them itself."""
        self._end = max(self._end if self.length else 0, self.length + n_tokens)

    def advance(self, n_tokens: int) -> None:
        """Counts tokens that every layer has appended."""
        self.length += n_tokens
        assert self.length <= self._end, "only what was written counts"

    def reach(self, length: int) -> int:
        """Returns how many of the first `length` tokens it can be cut back to: all, or none.

        A ring that has lost part of what is seen behind them could only be filled again from the first token on, since
        every layer's keys depend on those of the layer below a window earlier.
        """
        return length if all(room.holds(length, self._end) for room in self._rooms) else 0

    def truncate(self, length: int) -> None:
        """Forgets all tokens from `length` on."""
        assert 0 <= length <= self.length, "a cache can only be cut back"
        assert self.reach(length) == length, "what was overwritten does not come back"
        self.length = length

    def window(self, layer: int, end: int, n_tokens: int | None) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Returns keys and values of the last `n_tokens` before position `end` (all of them for None)."""
        start = 0 if n_tokens is None else max(0, end - n_tokens)
        return self._rooms[layer].read(start, end) if end else None


class _GrowingRoom:
    """A buffer that begins with the first token and grows."""

    def __init__(self) -> None:
        self._keys: torch.Tensor | None = None
        self._values: torch.Tensor | None = None

    @property
    def n_bytes(self) -> int:
        return sum(buffer.nbytes for buffer in (self._keys, self._values) if buffer is not None)

    def write(self, start: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        self._keys = _written(self._keys, start, keys)
        self._values = _written(self._values, start, values)

    def read(self, start: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        keys, values = self._keys, self._values
        assert keys is not None, "nothing is read before it is written"
        assert values is not None, "they are written together"
        return keys[:, start:end], values[:, start:end]

    def holds(self, length: int, end: int) -> bool:
        return True


def _written(buffer: torch.Tensor | None, start: int, rows: torch.Tensor) -> torch.Tensor:
    end = start + rows.shape[1]
    if buffer is None or end > buffer.shape[1]:
        grown = rows.new_empty(1, max(end + _GROWTH, 2 * start), *rows.shape[2:])
        if buffer is not None:
            grown[:, :start] = buffer[:, :start]
        buffer = grown
    buffer[:, start:end] = rows
    return buffer
