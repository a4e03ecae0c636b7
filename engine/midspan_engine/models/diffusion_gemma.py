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

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import nn

from midspan_engine.config import LayerConfig, ModelConfig
from midspan_engine.kv import KVCache
from midspan_engine.models.fused import FusedLayer
from midspan_engine.models.packed_matrix import PackedMatrix
from midspan_kernels.attention import attention
from midspan_kernels.canvas_attention import canvas_attention
from midspan_kernels.experts import routed_experts
from midspan_kernels.norm import residual_norm, rms_norm
from midspan_kernels.rotary import normed_rotate, rotary_angles, rotary_frequencies
from midspan_kernels.shared_attention import shared_context_attention
from midspan_kernels.soft_embedding import soft_embedding
from midspan_kernels.top_experts import top_experts

KeysValues = tuple[torch.Tensor, torch.Tensor]
"""Keys and values, each [B, L, G, D]."""
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

    def attend_behind(
        self, q: torch.Tensor, context: KeysValues, own: KeysValues, n_context_B: torch.Tensor, is_causal: bool
    ) -> torch.Tensor:
        """Returns [B, S, H] for queries over a part of a shared context and the rows' own keys."""
        out = shared_context_attention(q, context, own, n_context_B, is_causal=is_causal)
        projected: torch.Tensor = self.o_proj(out.flatten(2))
        return projected

    def attend(
        self,
        q: torch.Tensor,
        past: KeysValues | None,
        own: KeysValues,
        mask: torch.Tensor | None,
        is_causal: bool,
    ) -> torch.Tensor:
        """Returns [B, L, H] for queries over keys before a pass and its own; `mask` is true where one is visible."""
        if mask is None and not is_causal:
            out = canvas_attention(q, past, own)
        else:
            out = attention(q, *(own if past is None else _concatenate(past, own)), mask, is_causal=is_causal)
        projected: torch.Tensor = self.o_proj(out.flatten(2))
        return projected


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
        past: KeysValues | None,
        mask: torch.Tensor | None,
        is_causal: bool,
        scalar: torch.Tensor,
        wanted: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, KeysValues]:
        """Runs the layer over [B, L, H]; keys of `past` come before the pass' own. Returns the latter beside x.

        With `wanted`, indices along L, only those places of x are computed and returned; their keys are all seen.
        """
        if self.fused is not None:
            return self.fused(x, angles, past, mask, is_causal, scalar, wanted)
        normed = self.input_layernorm(x)
        own = self.self_attn.keys_values(normed, angles)
        if wanted is not None:
            x, normed = x[:, wanted], normed[:, wanted]
            angles = tuple(angle[:, wanted] for angle in angles)
        q = self.self_attn.queries(normed, angles)
        x = self.post_attention_layernorm.add(x, self.self_attn.attend(q, past, own, mask, is_causal))
        return self.feed_forward(x, scalar), own

    def behind(
        self,
        x: torch.Tensor,
        angles: Angles,
        context: KeysValues,
        n_context_B: torch.Tensor,
        is_causal: bool,
        scalar: torch.Tensor,
    ) -> torch.Tensor:
        """Runs the layer over rows [B, S, H] that share contexts, see `shared_context_attention`."""
        normed = self.input_layernorm(x)
        own = self.self_attn.keys_values(normed, angles)
        q = self.self_attn.queries(normed, angles)
        attended = self.self_attn.attend_behind(q, context, own, n_context_B, is_causal)
        return self.feed_forward(self.post_attention_layernorm.add(x, attended), scalar)


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
        self.n_weights = sum(parameter.numel() for parameter in self.parameters())
        """How many weights there are, in whatever form they are held later."""

    def fuse(self) -> None:
        """Folds the plain weights of a dense model for faster passes; nothing may change them afterwards."""
        for layer in cast("Sequence[Layer]", self.layers):
            if self.config.n_experts == 1 and not any(isinstance(module, PackedMatrix) for module in layer.modules()):
                attention = layer.self_attn
                layer.fused = FusedLayer(layer.state_dict(), head_dim=attention.head_dim, eps=attention.eps)

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        """Returns scaled embeddings [..., H]; the scale sqrt(H) is rounded to the weights' type, as the source does."""
        embedded: torch.Tensor = self.embed_tokens(ids)
        return embedded * self._embedding_scale()

    def _embedding_scale(self) -> torch.Tensor:
        weight = self.embed_tokens.weight
        return torch.tensor(self.config.hidden_size**0.5, dtype=weight.dtype, device=weight.device)

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
        kinds = {layer.is_sliding: layer for layer in self.config.layers}
        return {
            kind: rotary_angles(
                positions,
                rotary_frequencies(layer.head_dim, layer.rope_theta, layer.rotated).to(positions.device),
                dtype,
            )
            for kind, layer in kinds.items()
        }

    def encode(self, ids_1L: torch.Tensor, cache: KVCache) -> torch.Tensor:
        """Appends tokens to the cache and returns their hidden states [1, L, H], after the final norm.

        Token q sees keys kp <= q, in sliding layers only those with q - window < kp. Calling it chunk by chunk gives
        the same cache as one call.
        """
        start, n_tokens = cache.length, ids_1L.shape[1]
        positions = torch.arange(start, start + n_tokens, device=ids_1L.device)
        x = self.embed(ids_1L)
        angles = self.angles(positions[None], x.dtype)
        window = self.config.sliding_window
        masks = {
            True: _causal_mask(positions, max(0, start - window + 1), window),
            False: _causal_mask(positions, 0, None),
        }
        for index, (layer, scalar) in enumerate(zip(self.layers, self.encoder_layer_scalars, strict=True)):
            is_sliding = self.config.layers[index].is_sliding
            past = cache.window(index, start, window - 1 if is_sliding else None)
            mask = masks[is_sliding]
            x, own = layer(x, angles[is_sliding], past, mask, mask is None and n_tokens > 1, scalar)
            cache.append(index, *own)
        cache.advance(n_tokens)
        out: torch.Tensor = self.norm(x)
        return out

    def decode(
        self,
        canvas_BC: torch.Tensor,
        cache: KVCache,
        soft_BCH: torch.Tensor | None = None,
        wanted: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Returns the canvas' hidden states [B, C, H], after the final norm. Reads the cache, never writes it.

        Every slot sees every slot and all of the context; in sliding layers its last window - 1 tokens, the same for
        all slots. Positions go on from the context. All rows share the one cache. With `wanted` only the states of
        those slots are returned, and the last layer computes no others.
        """
        n_rows, n_slots = canvas_BC.shape
        positions = torch.arange(cache.length, cache.length + n_slots, device=canvas_BC.device)
        x = self.self_conditioning.mix(self.embed(canvas_BC), soft_BCH)
        angles = self.angles(positions[None], x.dtype)
        for index, layer in enumerate(self.layers):
            is_sliding = self.config.layers[index].is_sliding
            n_seen = self.config.sliding_window - 1 if is_sliding else None
            past = cache.window(index, cache.length, n_seen)
            if past is not None and n_rows > 1:
                past = (past[0].expand(n_rows, -1, -1, -1), past[1].expand(n_rows, -1, -1, -1))
            of_layer = wanted if index == len(self.layers) - 1 else None
            x, _ = layer(x, angles[is_sliding], past, None, False, layer.layer_scalar, of_layer)
        out: torch.Tensor = self.norm(x)
        return out

    def encode_rows(self, ids_BL: torch.Tensor) -> tuple[torch.Tensor, list[KeysValues]]:
        """Runs the encoder over whole rows for training: hidden states [B, L, H] and every layer's keys and values.

        Rows must not be longer than the sliding window, so that one causal mask serves every layer.
        """
        assert ids_BL.shape[1] <= self.config.sliding_window, "training rows fit the sliding window"
        x = self.embed(ids_BL)
        angles = self.angles(torch.arange(ids_BL.shape[1], device=ids_BL.device)[None], x.dtype)
        kept: list[KeysValues] = []
        for config, layer, scalar in zip(self.config.layers, self.layers, self.encoder_layer_scalars, strict=True):
            x, own = layer(x, angles[config.is_sliding], None, None, True, scalar)
            kept.append(own)
        return self.norm(x), kept

    def continue_rows(
        self, ids_BS: torch.Tensor, context: Sequence[KeysValues], n_context_B: torch.Tensor
    ) -> torch.Tensor:
        """Runs the encoder for training over rows that go on from the first n_context[b] tokens of their context.

        `context` as for `decode_rows`; returns hidden states [B, S, H], after the final norm.
        """
        scalars = list(self.encoder_layer_scalars)
        return self._rows_behind(self.embed(ids_BS), context, n_context_B, scalars, is_causal=True)

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
        x = self.self_conditioning.mix(self.embed(canvas_BC), soft_BCH)
        scalars = [layer.layer_scalar for layer in cast("Sequence[Layer]", self.layers)]
        return self._rows_behind(x, context, n_context_B, scalars, is_causal=False)

    def _rows_behind(
        self,
        x: torch.Tensor,
        context: Sequence[KeysValues],
        n_context_B: torch.Tensor,
        scalars: Sequence[torch.Tensor],
        *,
        is_causal: bool,
    ) -> torch.Tensor:
        positions_BS = n_context_B[:, None] + torch.arange(x.shape[1], device=x.device)
        angles = self.angles(positions_BS, x.dtype)
        layers = cast("Sequence[Layer]", self.layers)
        for config, layer, seen, scalar in zip(self.config.layers, layers, context, scalars, strict=True):
            x = layer.behind(x, angles[config.is_sliding], seen, n_context_B, is_causal, scalar)
        out: torch.Tensor = self.norm(x)
        return out


def _concatenate(past: KeysValues, own: KeysValues) -> KeysValues:
    return torch.cat([past[0], own[0]], dim=1), torch.cat([past[1], own[1]], dim=1)


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
