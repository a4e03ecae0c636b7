"""An encoder pass of fixed shape: the few tokens that a key adds are written into a row of the pool and read there.

Of what lies there the rest is not touched. What fills up the shape is written behind the real tokens, later than all
that counts, and the next pass writes over it; a ring loses as many of its oldest tokens for that. Shape suffixes: L
tokens, R rows of the pool, S places of one, G kv heads, D head dim.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch

from midspan_engine.config import ModelConfig
from midspan_engine.kv import KVCache
from midspan_engine.kv_pool import KVPool
from midspan_engine.models.decoder_pass import Attend
from midspan_engine.models.recording import Recording
from midspan_kernels.attention import KeysValues, attention

EncodedTokens = Callable[[torch.Tensor, torch.Tensor, Sequence[Attend]], torch.Tensor]
"""Takes tokens, positions and what each layer sees; returns hidden states."""


class EncoderPass:
    """One encoder pass over `n_tokens` of one prompt."""

    def __init__(self, config: ModelConfig, pool: KVPool, n_tokens: int) -> None:
        device = pool.layers[0][0].device
        self.recording = Recording()
        self._ids_1L = torch.zeros(1, n_tokens, dtype=torch.int64, device=device)
        self._row_start = torch.zeros(2, dtype=torch.int64, device=device)
        windows = [config.sliding_window if layer.is_sliding else pool.n_tokens for layer in config.layers]
        self._layers = list(zip(pool.layers, windows, strict=True))

    def run(self, encoded: EncodedTokens) -> torch.Tensor:
        """Writes what lies in the inputs into the pool and returns its hidden states [1, L, H]."""
        n_tokens, device = self._ids_1L.shape[1], self._ids_1L.device
        row_1, start_1 = torch.split(self._row_start, 1)
        positions_L = start_1 + torch.arange(n_tokens, device=device)
        seen: dict[tuple[int, int], torch.Tensor] = {}
        attends: list[Attend] = []
        for buffers, window in self._layers:
            n_places = buffers[0].shape[1]
            if (n_places, window) not in seen:
                seen[n_places, window] = _seen(positions_L, n_places, window)
            is_seen_LS = seen[n_places, window]
            places_L = positions_L % n_places
            attends.append(partial(_attend_in_row, buffers, row_1=row_1, places_L=places_L, is_seen_LS=is_seen_LS))
        return encoded(self._ids_1L, positions_L[None], attends)

    def __call__(self, encoded: EncodedTokens, ids_1L: torch.Tensor, cache: KVCache) -> torch.Tensor:
        """Appends at most as many tokens to a cache of the pool; their hidden states are good until the next pass."""
        n_tokens = ids_1L.shape[1]
        self._ids_1L[:, :n_tokens] = ids_1L
        self._ids_1L[:, n_tokens:] = ids_1L[:, -1:]
        self._row_start.copy_(torch.tensor([cache.row, cache.length]))
        cache.reserve(self._ids_1L.shape[1])
        hidden_1LH = self.recording.play(lambda: self.run(encoded))
        cache.advance(n_tokens)
        return hidden_1LH[:, :n_tokens]


def _seen(positions_L: torch.Tensor, n_places: int, window: int) -> torch.Tensor:
    """Returns [L, S], true where a place holds one of the last `window` tokens up to that of the query."""
    last_1 = positions_L[-1:]
    position_S = last_1 - (last_1 - torch.arange(n_places, device=positions_L.device)) % n_places
    is_in_window_LS = position_S > positions_L[:, None] - window
    return (position_S >= 0) & (position_S <= positions_L[:, None]) & is_in_window_LS


def _attend_in_row(
    buffers: KeysValues,
    q: torch.Tensor,
    own: KeysValues,
    *,
    row_1: torch.Tensor,
    places_L: torch.Tensor,
    is_seen_LS: torch.Tensor,
) -> torch.Tensor:
    for buffer, numbers in zip(buffers, own, strict=True):
        buffer[row_1, places_L] = numbers[0]
    keys, values = (buffer.index_select(0, row_1) for buffer in buffers)
    return attention(q, keys, values, is_seen_LS, is_causal=False)
