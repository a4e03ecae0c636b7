"""Which experts a token goes to, and with what weight."""

from __future__ import annotations

import torch

from midspan_kernels.choice import prefers_triton


def top_experts(logits_TE: torch.Tensor, top_k: int, scale_E: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns indices (int64) and fp32 weights, each [T, K], the most probable expert first.

    Softmax over all experts, the top k renormalised to sum 1, and only then the scale of each expert.
    """
    if prefers_triton(logits_TE):
        # Only there is Triton needed, and it takes time to import.
        from midspan_kernels.fused_top_experts import fused_top_experts

        return fused_top_experts(logits_TE, top_k, scale_E)
    p_TE = logits_TE.softmax(-1, dtype=torch.float32)
    weight_TK, index_TK = p_TE.topk(top_k, dim=-1)
    weight_TK = weight_TK / weight_TK.sum(-1, keepdim=True)
    return index_TK, weight_TK * scale_E[index_TK]
