"""Held-out losses of a finished run, such that runs of different recipes can be compared.

A recipe decides how it is asked: how much it reads, what its tokens are, how wide its canvas is. What is asked is the
same for all: gaps of at most 16 tokens, drawn by one seed, and the next token at the end of a row, where each recipe
sees as much in front of it as it can. Recipes that agree in rows and vocabulary get the very same gaps.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import torch
import torch.nn.functional as F

from midspan_engine.config import load_model_config
from midspan_engine.models.diffusion_gemma import DiffusionGemma
from midspan_engine.tokens import Tokens
from midspan_engine.training.examples import IGNORED, Batch
from midspan_engine.training.job import Job, make_examples
from midspan_engine.training.losses import infill_losses
from midspan_engine.training.run_folder import RunFolder, put

GAP_TOKENS = 16
"""The largest gap: it fits the narrowest canvas that is compared, of 32 slots, with text on both sides."""
END_TOKENS = 128
"""Tokens at the end of a row whose prediction counts, at most half of it; half of the shortest row that is compared."""
N_BATCHES, BATCH_ROWS = 32, 4
"""512 gaps for most recipes, in pieces that take little memory. Chosen."""
_SEED = 1


class Loss(msgspec.Struct, frozen=True):
    """A mean cross-entropy, nats."""

    token: float
    character: float
    """The same for each character (byte) that the tokens spell: what vocabularies of different sizes share."""


class HeldOut(msgspec.Struct, frozen=True):
    """The losses of averaged weights on held-out packages."""

    causal: Loss
    """Next token at the ends of rows."""
    quoted: Loss
    """Tokens of gaps and their ends, the suffix quoted in front."""
    canvas: Loss
    """Hidden slots of gaps, from one pass, weighted as in training."""


class _Sums(NamedTuple):
    nats: float
    tokens: float
    characters: float


def measure(job: Job, *, n_batches: int = N_BATCHES) -> HeldOut:
    """Returns the held-out losses of a job's run, its blanks weighed as one token.

    Raises as `make_examples` and `RunFolder.load_weights` do.
    """
    folder = RunFolder(job.run)
    model = DiffusionGemma(load_model_config(folder.checkpoint)).eval()
    put(model, folder.load_weights(model))
    tokens = Tokens.load(job.data / "tokenizer.json")
    n_characters_V = torch.tensor([float(len(spelling)) for spelling in tokens.spellings])
    infill = msgspec.structs.replace(job.recipe.infill, gap_tokens=min(GAP_TOKENS, job.recipe.infill.gap_tokens))
    schedule = msgspec.structs.replace(job.recipe.schedule, blank_weight=1.0)
    asked = msgspec.structs.replace(job, recipe=msgspec.structs.replace(job.recipe, infill=infill, schedule=schedule))
    examples = make_examples(asked, tokens, "held", _SEED)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found = [
            _sums(model, examples.batch(BATCH_ROWS), n_characters_V, tokens.bos_token_id or 0) for _ in range(n_batches)
        ]
    return HeldOut(*(_mean(sums) for sums in zip(*found, strict=True)))


def _sums(model: DiffusionGemma, batch: Batch, n_characters_V: torch.Tensor, bos_token_id: int) -> tuple[_Sums, ...]:
    losses = infill_losses(model, batch, bos_token_id, self_conditioned=False)
    answered_BA = batch.answers_BA != IGNORED
    quoted = n_characters_V[batch.answers_BA.clamp(min=0)] * answered_BA
    canvas = n_characters_V[batch.targets_BG] * batch.weights_BG
    n_answers, n_weights = float(answered_BA.sum()), float(batch.weights_BG.sum())
    return (
        _row_ends(model, batch.rows_RL, n_characters_V, bos_token_id),
        _Sums(losses.quoted.item() * n_answers, n_answers, float(quoted.sum())),
        _Sums(losses.canvas.item() * n_weights, n_weights, float(canvas.sum())),
    )


def _row_ends(model: DiffusionGemma, rows_RL: torch.Tensor, n_characters_V: torch.Tensor, bos_token_id: int) -> _Sums:
    hidden_RLH, _ = model.encode_rows(rows_RL)
    n_end = min(END_TOKENS, rows_RL.shape[1] // 2)
    targets = rows_RL[:, -n_end:]
    is_counted = targets != bos_token_id
    logits = model.logits(hidden_RLH[:, -n_end - 1 : -1])
    nats = F.cross_entropy(logits[is_counted], targets[is_counted], reduction="sum")
    return _Sums(nats.item(), float(is_counted.sum()), float(n_characters_V[targets[is_counted]].sum()))


def _mean(sums: tuple[_Sums, ...]) -> Loss:
    nats, tokens, characters = (sum(column) for column in zip(*sums, strict=True))
    return Loss(nats / tokens, nats / characters)
