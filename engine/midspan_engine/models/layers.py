"""A layer of DiffusionGemma and its parts, for passes of the encoder and of the decoder alike.

Shape suffixes: B rows, L tokens of a pass, C canvas slots, H hidden, N heads, G kv heads, D head dim, T tokens of all
rows, K experts of a token.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from midspan_engine.config import LayerConfig, ModelConfig
from midspan_engine.models.decoder_pass import Attend
from midspan_engine.models.fused import FusedLayer
from midspan_engine.models.packed_matrix import PackedMatrix
from midspan_kernels.attention import KeysValues
from midspan_kernels.experts import routed_experts
from midspan_kernels.norm import residual_norm, rms_norm
from midspan_kernels.rotary import normed_rotate
from midspan_kernels.top_experts import top_experts

Angles = tuple[torch.Tensor, ...]
"""Cos and sin of the rotary embedding, each [B or 1, L, 1, D]."""


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
