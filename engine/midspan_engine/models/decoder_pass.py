"""A decoder pass of fixed shape over rows of a pool of KV caches.

All that differs between two passes is data at fixed addresses: the canvas, its soft embeddings, and for each row its
place in the pool, what is seen of it and how many slots are real. So one recording serves while documents grow and take
turns. Rows and slots that a canvas does not fill up are computed too, and seen by nobody. Shape suffixes: B rows, C
slots, H hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch

from midspan_engine.config import ModelConfig
from midspan_engine.kv import KVCache
from midspan_engine.kv_pool import KVPool
from midspan_engine.models.recording import Recording
from midspan_kernels.attention import KeysValues
from midspan_kernels.canvas_attention import canvas_attention

Attend = Callable[[torch.Tensor, KeysValues], torch.Tensor]
"""Takes queries [B, L, N, D] and a pass' own keys and values; returns what the queries see of those and others."""
Denoised = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, Sequence[Attend]], torch.Tensor]
"""Takes a canvas, soft embeddings, positions and what each layer sees; returns hidden states."""

FULL, SLIDING = 0, 1
"""Where a pass is told what is seen in the two kinds of layers."""


class DecoderPass:
    """One decoder pass over `n_rows` canvases of `n_slots`."""

    def __init__(self, config: ModelConfig, pool: KVPool, n_rows: int, n_slots: int, dtype: torch.dtype) -> None:
        device = pool.layers[0][0].device
        self.recording = Recording()
        self._n_before = {FULL: pool.n_tokens, SLIDING: config.sliding_window - 1}
        self._canvas_BC = torch.zeros(n_rows, n_slots, dtype=torch.int64, device=device)
        self._soft_BCH = torch.zeros(n_rows, n_slots, config.hidden_size, dtype=dtype, device=device)
        # as `canvas_attention` reads it, of full and of sliding layers
        self._seen_2B4 = torch.zeros(2, n_rows, 4, dtype=torch.int64, device=device)
        self._seen_2B4[..., 3] = n_slots
        self._attends = [
            partial(_attend_in_pool, context=context, seen_B4=self._seen_2B4[SLIDING if layer.is_sliding else FULL])
            for layer, context in zip(config.layers, pool.layers, strict=True)
        ]

    def run(self, denoised: Denoised) -> torch.Tensor:
        """Returns the hidden states [B, C, H] of what lies in the inputs."""
        slot_C = torch.arange(self._canvas_BC.shape[1], device=self._canvas_BC.device)
        positions_BC = self._seen_2B4[FULL, :, 2, None] + slot_C
        return denoised(self._canvas_BC, self._soft_BCH, positions_BC, self._attends)

    def __call__(
        self, denoised: Denoised, canvas_BC: torch.Tensor, caches: Sequence[KVCache], soft_BCH: torch.Tensor | None
    ) -> torch.Tensor:
        """Returns the hidden states of a canvas that fits; they are good until the next pass."""
        assert all(each.row is not None for each in caches), "the pass reads the pool alone"
        n_rows, n_slots = canvas_BC.shape
        self._canvas_BC[:n_rows, :n_slots] = canvas_BC
        # the token of a real slot: others would have more experts read for nothing
        self._canvas_BC[:n_rows, n_slots:] = canvas_BC[:, -1:]
        if soft_BCH is None or soft_BCH.shape != self._soft_BCH.shape:
            self._soft_BCH.zero_()
        if soft_BCH is not None:
            self._soft_BCH[:n_rows, :n_slots] = soft_BCH
        seen = [
            [[each.row, max(0, each.length - n_before), each.length, n_slots] for each in caches]
            for n_before in (self._n_before[FULL], self._n_before[SLIDING])
        ]
        # pinned: the copy waits for its turn on the device, the host for nothing
        seen_2B4 = torch.tensor(seen, pin_memory=canvas_BC.is_cuda)
        self._seen_2B4[:, :n_rows].copy_(seen_2B4, non_blocking=True)
        return self.recording.play(lambda: self.run(denoised))[:n_rows, :n_slots]


def _attend_in_pool(q: torch.Tensor, own: KeysValues, *, context: KeysValues, seen_B4: torch.Tensor) -> torch.Tensor:
    return canvas_attention(q, context, own, seen_B4)
