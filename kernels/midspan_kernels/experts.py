"""The routed experts of a mixture-of-experts layer."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def routed_experts(
    x_TH: torch.Tensor,
    gate_up_E2IH: torch.Tensor,
    down_EHI: torch.Tensor,
    index_TK: torch.Tensor,
    weight_TK: torch.Tensor,
) -> torch.Tensor:
    """Returns the weighted sum of the chosen experts' outputs, [T, H].

    Expert e computes down[e] @ (gelu_tanh(gate) * up) with [gate; up] = gate_up[e] @ x: rows 0..I-1 of gate_up are
    the gate, rows I..2I-1 the up projection.
    """
    if gate_up_E2IH.shape[0] == 1:
        return _expert(x_TH, gate_up_E2IH[0], down_EHI[0]) * weight_TK.sum(-1, keepdim=True)
    out_TH = torch.zeros_like(x_TH)
    for expert in torch.unique(index_TK).tolist():
        rows, choice = torch.where(index_TK == expert)
        y = _expert(x_TH[rows], gate_up_E2IH[expert], down_EHI[expert])
        out_TH.index_add_(0, rows, (y * weight_TK[rows, choice, None]).to(out_TH.dtype))
    return out_TH


def _expert(x: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    gate, up = F.linear(x, gate_up).chunk(2, dim=-1)
    return F.linear(F.gelu(gate, approximate="tanh") * up, down)
