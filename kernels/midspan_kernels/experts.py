"""The routed experts of a mixture-of-experts layer."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from midspan_kernels.choice import prefers_triton
from midspan_kernels.packed import Packed
from midspan_kernels.quantised_linear import linear


def routed_experts(
    x_TH: torch.Tensor,
    gate_up_E2IH: torch.Tensor | Packed,
    down_EHI: torch.Tensor | Packed,
    index_TK: torch.Tensor,
    weight_TK: torch.Tensor,
) -> torch.Tensor:
    """Returns the weighted sum of the chosen experts' outputs, [T, H].

    Expert e computes down[e] @ (gelu_tanh(gate) * up) with [gate; up] = gate_up[e] @ x: rows 0..I-1 of gate_up are
    the gate, rows I..2I-1 the up projection. Of packed weights only those of chosen experts are unpacked.
    """
    n_experts = gate_up_E2IH.shape[0]
    if has_fixed_shapes(x_TH, n_experts) and n_experts > 1:
        # Only there is Triton needed, and it takes time to import.
        from midspan_kernels.packed_experts import packed_experts

        return packed_experts(x_TH, gate_up_E2IH, down_EHI, index_TK, weight_TK)
    if n_experts == 1:
        return _expert(x_TH, _of(gate_up_E2IH, 0), _of(down_EHI, 0)) * weight_TK.sum(-1, keepdim=True)
    out_TH = torch.zeros_like(x_TH)
    for expert in torch.unique(index_TK).tolist():
        rows, choice = torch.where(index_TK == expert)
        y = _expert(x_TH[rows], _of(gate_up_E2IH, expert), _of(down_EHI, expert))
        out_TH.index_add_(0, rows, (y * weight_TK[rows, choice, None]).to(out_TH.dtype))
    return out_TH


def has_fixed_shapes(x: torch.Tensor, n_experts: int) -> bool:
    """Tells whether the routing decides no shape, as a captured pass needs."""
    return n_experts == 1 or prefers_triton(x)


def _of(weights: torch.Tensor | Packed, expert: int) -> torch.Tensor | Packed:
    return weights.expert(expert) if isinstance(weights, Packed) else weights[expert]


def _expert(x: torch.Tensor, gate_up: torch.Tensor | Packed, down: torch.Tensor | Packed) -> torch.Tensor:
    gate, up = linear(x, gate_up).chunk(2, dim=-1)
    return linear(F.gelu(gate, approximate="tanh") * up, down)
