"""The two losses: next token on the rows, hidden gap slots on the canvases."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from midspan_engine.models.diffusion_gemma import DiffusionGemma
from midspan_engine.training.examples import Batch


def causal_loss(model: DiffusionGemma, rows_RL: torch.Tensor, bos_token_id: int) -> torch.Tensor:
    """Returns the mean cross-entropy of the next token, nats; predicting where a document ends does not count."""
    hidden_RLH, _ = model.encode_rows(rows_RL)
    return _next_token(model, hidden_RLH, rows_RL, bos_token_id)


def infill_losses(
    model: DiffusionGemma, batch: Batch, bos_token_id: int, *, self_conditioned: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the causal loss and the canvas loss (weighted mean over hidden gap slots, nats).

    A known slot is its own self-conditioning from the first step on. With `self_conditioned` a first pass, without
    gradient, supplies the soft embeddings of the hidden slots.
    """
    hidden_RLH, context = model.encode_rows(batch.rows_RL)
    causal = _next_token(model, hidden_RLH, batch.rows_RL, bos_token_id)
    own_BCH = model.embed(batch.canvas_BC).detach() * batch.known_BC[..., None]
    soft_BCH = own_BCH
    if self_conditioned:
        with torch.no_grad():
            guess_BGV = _gap_logits(model, batch, context, own_BCH)
            soft_BGH = model.soften(guess_BGV) * (batch.weights_BG > 0)[..., None]
            index = batch.slots_BG[..., None].expand_as(soft_BGH)
            soft_BCH = own_BCH.scatter_add(1, index, soft_BGH.to(own_BCH.dtype))
    logits_BGV = _gap_logits(model, batch, context, soft_BCH)
    loss_BG = F.cross_entropy(logits_BGV.flatten(0, 1), batch.targets_BG.flatten(), reduction="none")
    return causal, (loss_BG * batch.weights_BG.flatten()).sum() / batch.weights_BG.sum()


def _gap_logits(
    model: DiffusionGemma,
    batch: Batch,
    context: list[tuple[torch.Tensor, torch.Tensor]],
    soft_BCH: torch.Tensor,
) -> torch.Tensor:
    hidden_BCH = model.decode_rows(batch.canvas_BC, context, batch.n_context_B, soft_BCH)
    index = batch.slots_BG[..., None].expand(-1, -1, hidden_BCH.shape[-1])
    return model.logits(hidden_BCH.gather(1, index))


def _next_token(
    model: DiffusionGemma, hidden_RLH: torch.Tensor, rows_RL: torch.Tensor, bos_token_id: int
) -> torch.Tensor:
    targets = rows_RL[:, 1:].masked_fill(rows_RL[:, 1:] == bos_token_id, -100)
    return F.cross_entropy(model.logits(hidden_RLH[:, :-1]).flatten(0, 1), targets.flatten(), ignore_index=-100)
