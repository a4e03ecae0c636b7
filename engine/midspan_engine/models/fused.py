"""A layer of a dense checkpoint in fewer operations.

On a small model the number of operations takes more time than their size: one token takes 6.8 ms through `Layer`,
4.6 here, a canvas of 64 slots 14.8 and 12.7 (one core, 430 tokens of context). Norm weights are folded into the
matrices behind them; projections of the same input, those of the only expert among them, are one product. `Layer` is
the oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F

from midspan_kernels.rotary import rotate


class FusedLayer:
    """The folded weights of one layer with one expert."""

    def __init__(self, weights: Mapping[str, torch.Tensor], *, head_dim: int, eps: float) -> None:
        """Folds the `weights` of a `Layer` by their names in it."""
        w = {name.removesuffix(".weight"): tensor for name, tensor in weights.items()}
        self._head_dim, self._eps, self._is_sliding = head_dim, eps, "self_attn.v_proj" in w
        projections = [w[f"self_attn.{name}_proj"] for name in ("q", "k", "v") if f"self_attn.{name}_proj" in w]
        self._qkv = _folded(projections, w["input_layernorm"])
        self._n_queries, self._n_keys = (len(matrix) // head_dim for matrix in projections[:2])
        norms = [w["self_attn.q_norm"]] * self._n_queries + [w["self_attn.k_norm"]] * self._n_keys
        self._qk_norm = torch.stack(norms)
        self._o, self._post_attention = w["self_attn.o_proj"], w["post_attention_layernorm"]
        gates, ups = zip((w["mlp.gate_proj"], w["mlp.up_proj"]), w["experts.gate_up_proj"][0].chunk(2), strict=True)
        before = [w["pre_feedforward_layernorm"], w["pre_feedforward_layernorm_2"]]
        pairs = zip([*gates, *ups], before + before, strict=True)
        self._gate_up = torch.cat([_folded([matrix], norm) for matrix, norm in pairs])
        self._widths = [len(gate) for gate in gates]
        scale = w["router.per_expert_scale"]
        self._down = [w["mlp.down_proj"], (w["experts.down_proj"][0].float() * scale.float()).to(scale.dtype)]
        self._after_each = [w["post_feedforward_layernorm_1"], w["post_feedforward_layernorm_2"]]
        self._after = w["post_feedforward_layernorm"]

    def __call__(
        self,
        x: torch.Tensor,
        angles: tuple[torch.Tensor, ...],
        attend: Callable[[torch.Tensor, tuple[torch.Tensor, torch.Tensor]], torch.Tensor],
        scalar: torch.Tensor,
        wanted: torch.Tensor | None,
    ) -> torch.Tensor:
        """Runs the layer as `Layer.forward` does."""
        heads = F.linear(self._norm(x), self._qkv).unflatten(-1, (-1, self._head_dim))  # type: ignore[no-untyped-call]
        heads = F.rms_norm(heads, heads.shape[-1:], None, self._eps)
        turning, values = heads.split_with_sizes(self._split(heads.shape[2]), dim=2)
        q, k = rotate(turning * self._qk_norm, *angles).split_with_sizes([self._n_queries, self._n_keys], dim=2)
        # full layers have no values of their own: the normalised keys, before their norm's weight and the turning
        own = (k, values if self._is_sliding else turning[:, :, self._n_queries :])
        if wanted is not None:
            x, q = x[:, wanted], q[:, wanted]
        attended = F.linear(attend(q, own).flatten(2), self._o)
        x = x + self._norm(attended, self._post_attention)
        gate, up = F.linear(self._norm(x), self._gate_up).chunk(2, dim=-1)
        hidden = (F.gelu(gate, approximate="tanh") * up).split_with_sizes(self._widths, dim=-1)
        dense, routed = (
            self._norm(F.linear(part, down), after)
            for part, down, after in zip(hidden, self._down, self._after_each, strict=True)
        )
        return (x + self._norm(dense + routed, self._after)) * scalar

    def _split(self, n_heads: int) -> list[int]:
        n_turning = self._n_queries + self._n_keys
        return [n_turning, n_heads - n_turning]

    def _norm(self, x: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        return F.rms_norm(x, x.shape[-1:], weight, self._eps)


def _folded(matrices: list[torch.Tensor], norm: torch.Tensor) -> torch.Tensor:
    """Returns the matrices [out, in] below each other, their columns scaled by the weight of the norm before them."""
    return torch.cat([(matrix.float() * norm.float()).to(matrix.dtype) for matrix in matrices])
