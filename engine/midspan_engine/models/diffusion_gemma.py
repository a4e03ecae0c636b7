"""DiffusionGemma in plain PyTorch: one set of weights, run as a causal encoder and as a bidirectional canvas decoder.

Notable choices
- Encoder passes append to a `KVCache`; decoder passes only read it, and the canvas' own keys are temporary.
- Encoder and decoder differ in mask, input (the decoder's is self-conditioned) and per-layer scalar; nothing else.
- Parameters are named as in the checkpoint below `model.decoder.`; `checkpoint_name` maps the one exception
  and `is_skipped` names what a checkpoint holds besides.
- Attention has scale 1.0 (queries and keys are normalised per head) and no bias; logits are soft-capped in fp32.

Source: the DiffusionGemma checkpoint's config keys and the transformers implementation, whose logits the parity tests
compare with. Shape suffixes: B rows, L tokens of a pass, C canvas slots, H hidden, N heads, G kv heads, D head dim,
V vocabulary, T tokens of all rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import cast

import torch
import torch.nn.functional as F
from torch import nn

from midspan_engine.config import LayerConfig, ModelConfig
from midspan_engine.kv import KVCache
from midspan_engine.models.captured_passes import CapturedPasses
from midspan_engine.models.decoder_pass import Attend
from midspan_engine.models.fused import FusedLayer
from midspan_engine.models.packed_matrix import PackedMatrix
from midspan_kernels.attention import KeysValues, attention
from midspan_kernels.canvas_attention import canvas_attention
from midspan_kernels.experts import has_fixed_shapes, routed_experts
from midspan_kernels.norm import residual_norm, rms_norm
from midspan_kernels.rotary import normed_rotate, rotary_angles, rotary_frequencies
from midspan_kernels.shared_attention import shared_context_attention
from midspan_kernels.soft_embedding import soft_embedding
from midspan_kernels.top_experts import top_experts

Angles = tuple[torch.Tensor, ...]
"""Cos and sin of the rotary embedding, each [B or 1, L, 1, D]."""


def checkpoint_name(name: str) -> str:
    """Returns the checkpoint's name of a parameter of `DiffusionGemma`."""
    stem, _, index = name.rpartition(".")
    if stem == "encoder_layer_scalars":
        return f"model.encoder.language_model.layers.{index}.layer_scalar"
    return f"model.decoder.{name}"


def split_expert_names(name: str, n_experts: int) -> list[list[str]]:
    """Returns for each expert the names of the matrices that, below each other, make up its part of a fused tensor.

    `name` is the checkpoint's. Quantised checkpoints often hold the experts so; empty for a tensor that is not theirs.
    """
    layer, _, leaf = name.rpartition(".experts.")
    parts = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}.get(leaf, ())
    return [[f"{layer}.experts.{e}.{part}.weight" for part in parts] for e in range(n_experts)] if parts else []


def is_skipped(name: str) -> bool:
    """Tells whether a checkpoint's tensor is none of the text model's: its name is no parameter's and yet no surprise.

    Images are no input of an editor; the output head is the embedding; rotary tables are computed.
    """
    return (
        name == "lm_head.weight"
        or name.startswith(("model.encoder.vision_tower.", "model.encoder.embed_vision."))
        or name.endswith((".input_min", ".input_max", ".output_min", ".output_max"))
        or ".rotary_emb." in name
    )


class Norm(nn.Module):
    """RMS norm with a plain weight."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalises the last dimension."""
        return rms_norm(x, self.weight, self.eps)

    def add(self, x: torch.Tensor, branch: torch.Tensor, scalar: torch.Tensor | None = None) -> torch.Tensor:
        """Returns x plus the normalised branch, times `scalar` [1] if there is one."""
        return residual_norm(x, branch, self.weight, self.eps, scalar)


class GatedMLP(nn.Module):
    """down(gelu_tanh(gate(x)) * up(x)), without biases."""

    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, width, bias=False)
        self.up_proj = nn.Linear(hidden, width, bias=False)
        self.down_proj = nn.Linear(width, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps [..., H] to [..., H]."""
        out: torch.Tensor = self.down_proj(F.gelu(self.gate_proj(x), approximate="tanh") * self.up_proj(x))
        return out


class SelfConditioning(GatedMLP):
    """Mixes the soft embedding of the previous step into the canvas' embeddings."""

    def __init__(self, hidden: int, width: int, eps: float) -> None:
        super().__init__(hidden, width)
        self.pre_norm = Norm(hidden, eps)
        self.eps = eps

    def mix(self, x_BCH: torch.Tensor, soft_BCH: torch.Tensor | None) -> torch.Tensor:
        """Returns the decoder's input; the weightless norm applies without a soft embedding too."""
        if soft_BCH is not None:
            x_BCH = x_BCH + self(self.pre_norm(soft_BCH))
        return rms_norm(x_BCH, None, self.eps)


class Attention(nn.Module):
    """Grouped-query attention with normalised queries, keys and values; full layers reuse the keys as values."""

    def __init__(self, hidden: int, n_heads: int, layer: LayerConfig, eps: float) -> None:
        super().__init__()
        self.head_dim, self.eps = layer.head_dim, eps
        self.q_proj = nn.Linear(hidden, n_heads * layer.head_dim, bias=False)
        self.k_proj = nn.Linear(hidden, layer.n_kv_heads * layer.head_dim, bias=False)
        if layer.is_sliding:
            self.v_proj = nn.Linear(hidden, layer.n_kv_heads * layer.head_dim, bias=False)
        self.o_proj = nn.Linear(n_heads * layer.head_dim, hidden, bias=False)
        self.q_norm = Norm(layer.head_dim, eps)
        self.k_norm = Norm(layer.head_dim, eps)
        self.is_sliding = layer.is_sliding

    def queries(self, x_BLH: torch.Tensor, angles: Angles) -> torch.Tensor:
        """Returns queries [B, L, N, D], normalised and turned."""
        q = self.q_proj(x_BLH).unflatten(-1, (-1, self.head_dim))
        return normed_rotate(q, self.q_norm.weight, self.eps, *angles)

    def keys_values(self, x_BLH: torch.Tensor, angles: Angles) -> KeysValues:
        """Returns keys and values [B, L, G, D], normalised, the keys turned."""
        k = self.k_proj(x_BLH).unflatten(-1, (-1, self.head_dim))
        v = self.v_proj(x_BLH).unflatten(-1, (-1, self.head_dim)) if self.is_sliding else k
        return normed_rotate(k, self.k_norm.weight, self.eps, *angles), rms_norm(v, None, self.eps)


class Router(nn.Module):
    """Chooses the experts of each token from the raw residual stream."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.proj = nn.Linear(config.hidden_size, config.n_experts, bias=False)
        self.scale = nn.Parameter(torch.ones(config.hidden_size))
        self.per_expert_scale = nn.Parameter(torch.ones(config.n_experts))
        self.top_k, self.eps = config.top_k_experts, config.rms_norm_eps

    def forward(self, x_TH: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns expert indices and fp32 weights, each [T, K]."""
        if len(self.per_expert_scale) == 1:  # nothing to choose: the only expert's probability is 1
            index_TK = torch.zeros(len(x_TH), 1, dtype=torch.int64, device=x_TH.device)
            return index_TK, self.per_expert_scale.float().expand(len(x_TH), 1)
        z = rms_norm(x_TH, None, self.eps) * self.scale * x_TH.shape[-1] ** -0.5
        return top_experts(self.proj(z), self.top_k, self.per_expert_scale)


class Experts(nn.Module):
    """The experts' fused weights, plain or packed."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        n, h, i = config.n_experts, config.hidden_size, config.moe_intermediate_size
        self.gate_up_proj: nn.Parameter | PackedMatrix = nn.Parameter(torch.empty(n, 2 * i, h))
        self.down_proj: nn.Parameter | PackedMatrix = nn.Parameter(torch.empty(n, h, i))

    def forward(self, x_TH: torch.Tensor, index_TK: torch.Tensor, weight_TK: torch.Tensor) -> torch.Tensor:
        """Returns the weighted sum of the chosen experts, [T, H]."""
        gate_up, down = (w.packed if isinstance(w, PackedMatrix) else w for w in (self.gate_up_proj, self.down_proj))
        return routed_experts(x_TH, gate_up, down, index_TK, weight_TK).to(x_TH.dtype)


class Layer(nn.Module):
    """Attention, then a dense MLP beside a mixture of experts, each between two norms."""

    def __init__(self, config: ModelConfig, layer: LayerConfig) -> None:
        super().__init__()
        h, eps = config.hidden_size, config.rms_norm_eps
        self.self_attn = Attention(h, config.n_heads, layer, eps)
        self.mlp = GatedMLP(h, config.intermediate_size)
        self.router = Router(config)
        self.experts = Experts(config)
        self.input_layernorm = Norm(h, eps)
        self.post_attention_layernorm = Norm(h, eps)
        self.pre_feedforward_layernorm = Norm(h, eps)
        self.post_feedforward_layernorm = Norm(h, eps)
        self.post_feedforward_layernorm_1 = Norm(h, eps)
        self.pre_feedforward_layernorm_2 = Norm(h, eps)
        self.post_feedforward_layernorm_2 = Norm(h, eps)
        self.layer_scalar = nn.Parameter(torch.ones(1))
        self.fused: FusedLayer | None = None

    def feed_forward(self, x: torch.Tensor, scalar: torch.Tensor) -> torch.Tensor:
        """Returns what the layer gives, [B, L, H], of the residual stream behind attention."""
        flat = x.flatten(0, 1)
        dense = self.post_feedforward_layernorm_1(self.mlp(self.pre_feedforward_layernorm(x)))
        routed = self.experts(self.pre_feedforward_layernorm_2(flat), *self.router(flat)).view_as(x)
        return self.post_feedforward_layernorm.add(x, dense + self.post_feedforward_layernorm_2(routed), scalar)

    def forward(
        self,
        x: torch.Tensor,
        angles: Angles,
        attend: Attend,
        scalar: torch.Tensor,
        wanted: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Runs the layer over [B, L, H].

        With `wanted`, indices along L, only those places of x are computed and returned; their keys are all seen.
        """
        if self.fused is not None:
            return self.fused(x, angles, attend, scalar, wanted)
        normed = self.input_layernorm(x)
        own = self.self_attn.keys_values(normed, angles)
        if wanted is not None:
            x, normed = x[:, wanted], normed[:, wanted]
            angles = tuple(angle[:, wanted] for angle in angles)
        seen = attend(self.self_attn.queries(normed, angles), own)
        x = self.post_attention_layernorm.add(x, self.self_attn.o_proj(seen.flatten(2)))
        return self.feed_forward(x, scalar)


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
    def has_fixed_shapes(self) -> bool:
        """Whether passes can be captured as things are: the routing decides no shape."""
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

    def soften(self, logits_V: torch.Tensor) -> torch.Tensor:
        """Returns the soft embedding [..., H] of temperature-divided logits [..., V] (rounded to the weights' type)."""
        return soft_embedding(logits_V, self.embed_tokens.weight) * self._embedding_scale()

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Returns soft-capped fp32 logits [..., V] of normalised hidden states [..., H]."""
        z = F.linear(hidden, self.embed_tokens.weight).float()
        cap = self.config.softcap
        return z if cap is None else torch.tanh(z / cap) * cap

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
            True: _causal_mask(positions_L, max(0, start - window + 1), window),
            False: _causal_mask(positions_L, 0, None),
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


def _causal_mask(queries: torch.Tensor, first_key: int, window: int | None) -> torch.Tensor | None:
    """Returns [L, K], true where the key is visible.

    None when plain causality over the same tokens says it all, or a single query sees all keys from `first_key` on.
    """
    n_queries, end = len(queries), int(queries[-1]) + 1
    if n_queries == 1:
        return None
    if n_queries == end and (window is None or end <= window):
        return None
    keys = torch.arange(first_key, end, device=queries.device)
    visible = keys[None] <= queries[:, None]
    if window is not None:
        visible &= keys[None] > queries[:, None] - window
    return visible
