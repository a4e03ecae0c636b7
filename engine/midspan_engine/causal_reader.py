"""What the encoder reads behind the context during one fill; the KV cache stays as long as the context."""

from __future__ import annotations

import torch

from midspan_engine.encoding import encode
from midspan_engine.errors import NO_NUMBERS, EngineError
from midspan_engine.kv import KVCache
from midspan_engine.models.diffusion_gemma import DiffusionGemma


class CausalReader:
    """Reads token lists that mostly repeat the one before, and encodes only what is new."""

    def __init__(self, model: DiffusionGemma, cache: KVCache) -> None:
        self._model, self._cache, self._length = model, cache, cache.length
        self._ids: list[int] = []

    def logits(self, ids: list[int], start: int) -> torch.Tensor:
        """Returns logits [len(ids) - start, V]: the encoder's opinion of what follows each of `ids[start:]`."""
        n_shared = 0
        while n_shared < min(start, len(self._ids)) and self._ids[n_shared] == ids[n_shared]:
            n_shared += 1
        # what was read before still lies behind the context: the decoder never writes, and nobody else fills meanwhile
        self._cache.advance(n_shared)
        hidden_1LH = encode(self._model, ids[n_shared:], self._cache)
        self._cache.truncate(self._length)
        self._ids = ids
        z_DV = self._model.logits(hidden_1LH[0, start - n_shared :])
        if z_DV.isnan().any():
            raise EngineError(NO_NUMBERS)
        return z_DV

    def log_probabilities(self, left: list[int], ids: list[int]) -> torch.Tensor:
        """Returns the log-probabilities (nats) of tokens behind `left`; without it and a context the first has none."""
        read = [*left, *ids[:-1]]
        if not read:
            return torch.zeros(0)
        z_LV = self.logits(read, max(len(left) - 1, 0))
        return of_tokens(z_LV, ids[-len(z_LV) :])


def of_tokens(z_LV: torch.Tensor, ids: list[int]) -> torch.Tensor:
    """Returns the log-probabilities [L] of tokens, one for each row of logits."""
    ids_L = torch.tensor(ids, device=z_LV.device)
    return z_LV.log_softmax(-1).gather(-1, ids_L[:, None])[:, 0]
