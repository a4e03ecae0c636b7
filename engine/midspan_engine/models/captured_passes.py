"""The passes of a model whose shapes are fixed: captured once as CUDA graphs, then replayed.

A pass of the 26B model is some thousand launches, and issuing them takes longer than they run; a replay issues one. On
a CPU the same passes are run as they are, which is how the tests prove what graphs would record.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from midspan_engine.config import ModelConfig
from midspan_engine.kv import KVCache
from midspan_engine.kv_pool import KVPool
from midspan_engine.models.decoder_pass import DecoderPass, Denoised
from midspan_engine.models.encoder_pass import EncodedTokens, EncoderPass


class CapturedPasses:
    """Decoder passes by rows and slots, encoder passes by tokens, over the caches of one pool."""

    def __init__(
        self,
        config: ModelConfig,
        pool: KVPool,
        dtype: torch.dtype,
        *,
        decoder: Iterable[tuple[int, int]],
        encoder: Iterable[int],
    ) -> None:
        self.pool = pool
        # from the smallest on: the first that fits is taken
        ordered = sorted(set(decoder), key=lambda shape: (shape[0] * shape[1], shape))
        self.decoder = {shape: DecoderPass(config, pool, *shape, dtype) for shape in ordered}
        self.encoder = {n_tokens: EncoderPass(config, pool, n_tokens) for n_tokens in sorted(set(encoder))}

    def record(self, denoised: Denoised, encoded: EncodedTokens) -> None:
        """Captures all passes, on a GPU. What the model computes is not kept: the model keeps these."""
        memory = torch.cuda.graph_pool_handle()
        for decoding in reversed(self.decoder.values()):  # the largest makes room for all others
            decoding.recording.record(lambda decoding=decoding: decoding.run(denoised), memory)  # type: ignore[misc]
        for encoding in self.encoder.values():
            encoding.recording.record(lambda encoding=encoding: encoding.run(encoded), memory)  # type: ignore[misc]

    def decode(
        self,
        denoised: Denoised,
        canvas_BC: torch.Tensor,
        caches: Sequence[KVCache],
        soft_BCH: torch.Tensor | None,
        wanted: torch.Tensor | None,
    ) -> torch.Tensor | None:
        """Returns what `DiffusionGemma.decode` does; None when there is no pass for as many rows, slots or caches."""
        n_rows, n_slots = canvas_BC.shape
        fits = (taken for (rows, slots), taken in self.decoder.items() if rows >= n_rows and slots >= n_slots)
        decoding = next(fits, None)
        if decoding is None or any(cache.row is None for cache in caches):
            return None
        hidden_BCH = decoding(denoised, canvas_BC, caches, soft_BCH)
        return hidden_BCH.clone() if wanted is None else hidden_BCH[:, wanted]

    def encode(self, encoded: EncodedTokens, ids_1L: torch.Tensor, cache: KVCache) -> torch.Tensor | None:
        """Does what `DiffusionGemma.encode` does; None when there is no pass for as many tokens or the cache."""
        n_tokens = ids_1L.shape[1]
        size = next((size for size in self.encoder if size >= n_tokens), None)
        if size is None or cache.row is None or cache.length + size > self.pool.n_tokens:
            return None
        return self.encoder[size](encoded, ids_1L, cache).clone()
