"""DiffusionGemma in plain PyTorch: one set of weights, run as a causal encoder and as a bidirectional canvas decoder.

Notable choices
- Encoder passes append to a `KVCache`; decoder passes only read it, and the canvas' own keys are temporary.
- Encoder and decoder differ in mask, input (the decoder's is self-conditioned) and per-layer scalar; nothing else.
- Parameters are named as in the checkpoint below `model.decoder.`; `checkpoint_names.py` maps the one exception and
  names what a checkpoint holds besides.
- Attention has scale 1.0 (queries and keys are normalised per head) and no bias; logits are soft-capped in fp32.

Source: the DiffusionGemma checkpoint's config keys and the transformers implementation, whose logits the parity tests
compare with. Shape suffixes: B rows, L tokens of a pass, C canvas slots, H hidden, N heads, G kv heads, D head dim,
V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import cast

import torch
import torch.nn.functional as F
from torch import nn

from midspan_engine.config import ModelConfig
from midspan_engine.kv import KVCache
from midspan_engine.models.captured_passes import CapturedPasses
from midspan_engine.models.decoder_pass import Attend
from midspan_engine.models.fused import FusedLayer
from midspan_engine.models.layers import Angles, Layer, Norm, SelfConditioning
from midspan_engine.models.packed_matrix import PackedMatrix
from midspan_kernels.attention import KeysValues, attention
from midspan_kernels.canvas_attention import canvas_attention
from midspan_kernels.experts import has_fixed_shapes
from midspan_kernels.rotary import rotary_angles, rotary_frequencies
from midspan_kernels.row_logits import RowLogits, capped
from midspan_kernels.shared_attention import shared_context_attention
from midspan_kernels.soft_embedding import soft_embedding


class DiffusionGemma(nn.Module):
    """The text model: `encode` fills a cache causally, `decode` denoises a canvas against it."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        # left undrawn: a normal draw on the meta device imports torch's compiler, a second and a hundred megabytes
        undrawn_VH = torch.empty(config.vocab_size, config.hidden_size)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size, _weight=undrawn_VH)
        self.layers = nn.ModuleList(Layer(config, layer) for layer in config.layers)
        self.norm = Norm(config.hidden_size, config.rms_norm_eps)
        self.self_conditioning = SelfConditioning(config.hidden_size, config.intermediate_size, config.rms_norm_eps)
        self.encoder_layer_scalars = nn.ParameterList(nn.Parameter(torch.ones(1)) for _ in config.layers)
        with torch.device("cpu"):  # whatever the parameters are made on: these are no weights, nothing fills them later
            self._frequencies = {
                layer.is_sliding: rotary_frequencies(layer.head_dim, layer.rope_theta, layer.rotated)
                for layer in config.layers
            }
        self.captured: CapturedPasses | None = None
        """Passes of fixed shapes, if there are any."""
        self.n_weights = sum(parameter.numel() for parameter in self.parameters())
        """How many weights there are, in whatever form they are held later."""

    def fuse(self) -> None:
        """Folds the plain weights of a dense model for faster passes; nothing may change them afterwards."""
        for layer in cast("Sequence[Layer]", self.layers):
            if self.config.n_experts == 1 and not any(isinstance(module, PackedMatrix) for module in layer.modules()):
                attention = layer.self_attn
                layer.fused = FusedLayer(layer.state_dict(), head_dim=attention.head_dim, eps=attention.eps)

    @property
    @torch.no_grad()
    def has_fixed_shapes(self) -> bool:
        """Whether passes that keep no gradients can be captured as things are: the routing decides no shape."""
        return has_fixed_shapes(self.embed_tokens.weight, self.config.n_experts)

    def capture(self, captured: CapturedPasses) -> None:
        """Lets passes of fixed shapes serve the caches of their pool; on a GPU they are recorded now.

        Nothing may move or replace the weights afterwards: recordings are bound to their addresses.
        """
        device = self.embed_tokens.weight.device
        self._frequencies = {kind: table.to(device) for kind, table in self._frequencies.items()}
        if device.type == "cuda":
            captured.record(self.denoised, self.encoded)
        self.captured = captured

    def new_cache(self) -> KVCache:
        """Returns an empty cache: a row of the pool of captured passes, or one of its own where no row is free."""
        taken = None if self.captured is None else self.captured.pool.take()
        return taken or KVCache(self.config.n_layers)

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        """Returns scaled embeddings [..., H]; the scale sqrt(H) is rounded to the weights' type, as the source does."""
        embedded: torch.Tensor = self.embed_tokens(ids)
        return embedded * self._embedding_scale()

    def _embedding_scale(self) -> torch.Tensor:
        weight = self.embed_tokens.weight
        # filled where it is, not copied there: a captured pass may not wait for the host
        return torch.full((), self.config.hidden_size**0.5, dtype=weight.dtype, device=weight.device)

    def soften(self, z_V: torch.Tensor, cap: float | None = None, temperature: float = 1.0) -> torch.Tensor:
        """Returns the soft embedding [..., H] of logits [..., V], given as they are or as the parts of `RowLogits`."""
        return soft_embedding(RowLogits(z_V, cap, temperature), self.embed_tokens.weight) * self._embedding_scale()

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Returns soft-capped fp32 logits [..., V] of normalised hidden states [..., H]."""
        return capped(F.linear(hidden, self.embed_tokens.weight), self.config.softcap)

    def row_logits(self, hidden: torch.Tensor) -> RowLogits:
        """Returns the same in the weights' type and before the cap, for whoever applies it in reading."""
        return RowLogits(F.linear(hidden, self.embed_tokens.weight), self.config.softcap)

    def angles(self, positions: torch.Tensor, dtype: torch.dtype) -> dict[bool, Angles]:
        """Returns rotary angles by kind of layer (True: sliding) for positions [B or 1, L]."""
        return {
            kind: rotary_angles(positions, frequencies.to(positions.device), dtype)
            for kind, frequencies in self._frequencies.items()
        }

    def encode(self, ids_1L: torch.Tensor, cache: KVCache) -> torch.Tensor:
        """Appends tokens to the cache and returns their hidden states [1, L, H], after the final norm.

        Token q sees keys kp <= q, in sliding layers only those with q - window < kp. Calling it chunk by chunk gives
        the same cache as one call.
        """
        if self.captured is not None:
            captured_1LH = self.captured.encode(self.encoded, ids_1L, cache)
            if captured_1LH is not None:
                return captured_1LH
        start, n_tokens = cache.length, ids_1L.shape[1]
        positions_L = torch.arange(start, start + n_tokens, device=ids_1L.device)
        window = self.config.sliding_window
        masks = {
            True: _causal_mask(positions_L, start, max(0, start - window + 1), window),
            False: _causal_mask(positions_L, start, 0, None),
        }
        attends: list[Attend] = []
        for index, layer in enumerate(self.config.layers):
            n_seen = window - 1 + n_tokens if layer.is_sliding else None
            attends.append(
                partial(_attend_in_cache, cache=cache, layer=index, n_seen=n_seen, mask=masks[layer.is_sliding])
            )
        hidden_1LH = self.encoded(ids_1L, positions_L[None], attends)
        cache.advance(n_tokens)
        return hidden_1LH

    def decode(
        self,
        canvas_BC: torch.Tensor,
        cache: KVCache | Sequence[KVCache],
        soft_BCH: torch.Tensor | None = None,
        wanted: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Returns the canvas' hidden states [B, C, H], after the final norm. Reads the cache, never writes it.

        Every slot sees every slot and all of the context; in sliding layers its last window - 1 tokens, the same for
        all slots. Positions go on from the context. All rows share the one cache, or each has its own, whatever its
        length. With `wanted` only the states of those slots are returned, and the last layer computes no others.
        """
        caches = [cache] if isinstance(cache, KVCache) else cache
        assert len(caches) in (1, len(canvas_BC)), "one cache for all rows, or one for each"
        if self.captured is not None:
            captured_BCH = self.captured.decode(self.denoised, canvas_BC, caches, soft_BCH, wanted)
            if captured_BCH is not None:
                return captured_BCH
        starts_B1 = torch.tensor([[each.length] for each in caches], device=canvas_BC.device)
        positions_BC = starts_B1 + torch.arange(canvas_BC.shape[1], device=canvas_BC.device)
        attends: list[Attend] = []
        for index, layer in enumerate(self.config.layers):
            n_seen = self.config.sliding_window - 1 if layer.is_sliding else None
            contexts = [each.window(index, each.length, n_seen) for each in caches]
            attends.append(partial(_attend_from_canvas, contexts=contexts))
        return self.denoised(canvas_BC, soft_BCH, positions_BC, attends, wanted)

    def encoded(self, ids_BL: torch.Tensor, positions_BL: torch.Tensor, attends: Sequence[Attend]) -> torch.Tensor:
        """Returns what `encode` does, given what each layer's queries see; positions are [B or 1, L]."""
        return self._through(self.embed(ids_BL), positions_BL, attends, self.encoder_layer_scalars)

    def denoised(
        self,
        canvas_BC: torch.Tensor,
        soft_BCH: torch.Tensor | None,
        positions_BC: torch.Tensor,
        attends: Sequence[Attend],
        wanted: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Returns what `decode` does, given what each layer's queries see; positions are [B or 1, C]."""
        x_BCH = self.self_conditioning.mix(self.embed(canvas_BC), soft_BCH)
        scalars = [layer.layer_scalar for layer in cast("Sequence[Layer]", self.layers)]
        return self._through(x_BCH, positions_BC, attends, scalars, wanted)

    def encode_rows(self, ids_BL: torch.Tensor) -> tuple[torch.Tensor, list[KeysValues]]:
        """Runs the encoder over whole rows for training: hidden states [B, L, H] and every layer's keys and values.

        Rows must not be longer than the sliding window, so that one causal mask serves every layer.
        """
        assert ids_BL.shape[1] <= self.config.sliding_window, "training rows fit the sliding window"
        kept: list[KeysValues] = []

        def attend(q: torch.Tensor, own: KeysValues) -> torch.Tensor:
            kept.append(own)
            return attention(q, *own, None, is_causal=True)

        positions_1L = torch.arange(ids_BL.shape[1], device=ids_BL.device)[None]
        attends = [attend] * self.config.n_layers
        return self.encoded(ids_BL, positions_1L, attends), kept

    def continue_rows(
        self, ids_BS: torch.Tensor, context: Sequence[KeysValues], n_context_B: torch.Tensor
    ) -> torch.Tensor:
        """Runs the encoder for training over rows that go on from the first n_context[b] tokens of their context.

        `context` as for `decode_rows`; returns hidden states [B, S, H], after the final norm.
        """
        positions_BS, attends = _behind(context, n_context_B, ids_BS.shape[1], is_causal=True)
        return self.encoded(ids_BS, positions_BS, attends)

    def decode_rows(
        self,
        canvas_BC: torch.Tensor,
        context: Sequence[KeysValues],
        n_context_B: torch.Tensor,
        soft_BCH: torch.Tensor | None,
    ) -> torch.Tensor:
        """Runs the decoder for training: row b sees the first n_context[b] tokens of its context and its own canvas.

        `context` holds each layer's keys and values, [R, L, G, D] with B a multiple of R: row b of the canvas belongs
        to row b // (B / R) of the context.
        """
        positions_BC, attends = _behind(context, n_context_B, canvas_BC.shape[1], is_causal=False)
        return self.denoised(canvas_BC, soft_BCH, positions_BC, attends)

    def _through(
        self,
        x_BLH: torch.Tensor,
        positions_BL: torch.Tensor,
        attends: Sequence[Attend],
        scalars: Iterable[torch.Tensor],
        wanted: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Runs all layers and the final norm; only the last layer takes `wanted`, the others are needed whole."""
        angles = self.angles(positions_BL, x_BLH.dtype)
        last = self.config.n_layers - 1
        for index, (layer, attend, scalar) in enumerate(zip(self.layers, attends, scalars, strict=True)):
            of_layer = wanted if index == last else None
            x_BLH = layer(x_BLH, angles[self.config.layers[index].is_sliding], attend, scalar, of_layer)
        out: torch.Tensor = self.norm(x_BLH)
        return out


def _attend_in_cache(
    q: torch.Tensor, own: KeysValues, *, cache: KVCache, layer: int, n_seen: int | None, mask: torch.Tensor | None
) -> torch.Tensor:
    """Appends a pass' keys and values to the cache and reads them there with those before: nothing is concatenated."""
    cache.append(layer, *own)
    seen = cache.window(layer, cache.length + q.shape[1], n_seen)
    assert seen is not None, "the pass' own tokens are there"
    return attention(q, *seen, mask, is_causal=mask is None and q.shape[1] > 1)


def _attend_from_canvas(q: torch.Tensor, own: KeysValues, *, contexts: Sequence[KeysValues | None]) -> torch.Tensor:
    """Lets a canvas see the one context of all rows, or each row its own."""
    if len(contexts) == 1:
        return canvas_attention(q, contexts[0], own)
    rows = zip(*(torch.split(t, 1) for t in (q, *own)), contexts, strict=True)
    return torch.cat([canvas_attention(q_1, context, (k_1, v_1)) for q_1, k_1, v_1, context in rows])


def _behind(
    context: Sequence[KeysValues], n_context_B: torch.Tensor, n_slots: int, *, is_causal: bool
) -> tuple[torch.Tensor, list[Attend]]:
    """Returns the positions [B, S] and what each layer sees of rows that share contexts, for training."""
    attends: list[Attend] = [
        partial(_attend_behind, context=of_layer, n_context_B=n_context_B, is_causal=is_causal) for of_layer in context
    ]
    return n_context_B[:, None] + torch.arange(n_slots, device=n_context_B.device), attends


def _attend_behind(
    q: torch.Tensor, own: KeysValues, *, context: KeysValues, n_context_B: torch.Tensor, is_causal: bool
) -> torch.Tensor:
    return shared_context_attention(q, context, own, n_context_B, is_causal=is_causal)


def _causal_mask(queries: torch.Tensor, start: int, first_key: int, window: int | None) -> torch.Tensor | None:
    """Returns [L, K], true where the key is visible to queries from position `start` on.

    None when plain causality over the same tokens says it all, or a single query sees all keys from `first_key` on.
    """
    n_queries, end = len(queries), start + len(queries)
    if n_queries == 1:
        return None
    if start == 0 and (window is None or end <= window):
        return None
    keys = torch.arange(first_key, end, device=queries.device)
    visible = keys[None] <= queries[:, None]
    if window is not None:
        visible &= keys[None] > queries[:, None] - window
    return visible
