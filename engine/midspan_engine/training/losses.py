"""The losses: next token on the rows, next token of gaps behind a quoted suffix, hidden slots of canvases."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F

from midspan_engine.models.diffusion_gemma import DiffusionGemma
from midspan_engine.training.examples import IGNORED, Batch


def causal_loss(model: DiffusionGemma, rows_RL: torch.Tensor, bos_token_id: int) -> torch.Tensor:
    """Returns the mean cross-entropy of the next token, nats; predicting where a document ends does not count."""
    hidden_RLH, _ = model.encode_rows(rows_RL)
    return _next_token(model, hidden_RLH, rows_RL, bos_token_id)


class Losses(NamedTuple):
    """The losses of one batch, nats."""

    causal: torch.Tensor
    """Next token on the rows."""
    quoted: torch.Tensor
    """Next token of the gap, the suffix quoted in front."""
    canvas: torch.Tensor
    """Hidden gap slots, a weighted mean."""


def infill_losses(model: DiffusionGemma, batch: Batch, bos_token_id: int, *, self_conditioned: bool) -> Losses:
    """Returns the losses of a batch.

    A known slot is its own self-conditioning from the first step on. With `self_conditioned` a first pass, without
    gradient, supplies the soft embeddings of the hidden slots.
    """
    hidden_RLH, context = model.encode_rows(batch.rows_RL)
    causal = _next_token(model, hidden_RLH, batch.rows_RL, bos_token_id)
    quoted = _quoted(model, batch, context)
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
    return Losses(causal, quoted, (loss_BG * batch.weights_BG.flatten()).sum() / batch.weights_BG.sum())


def _quoted(model: DiffusionGemma, batch: Batch, context: list[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
    hidden_BSH = model.continue_rows(batch.quoted_BS, context, batch.n_context_B)
    index = batch.spots_BA[..., None].expand(-1, -1, hidden_BSH.shape[-1])
    logits_BAV = model.logits(hidden_BSH.gather(1, index))
    return F.cross_entropy(logits_BAV.flatten(0, 1), batch.answers_BA.flatten(), ignore_index=IGNORED)


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
    targets = rows_RL[:, 1:].masked_fill(rows_RL[:, 1:] == bos_token_id, IGNORED)
    return F.cross_entropy(model.logits(hidden_RLH[:, :-1]).flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
